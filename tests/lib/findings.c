/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of f8ctl doctor: see findings.h. */
#include "lib/findings.h"

#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

static json_t *findings; /* owned: of the last run */

/* Whatever is wrong has a remedy, and nothing else has one. */
static void check_remedies(void)
{
    size_t i;
    const json_t *finding;
    json_array_foreach(findings, i, finding)
    {
        const char *result = json_string_value(json_object_get(finding, "result"));
        const char *remedy = json_string_value(json_object_get(finding, "remedy"));
        bool ok = strcmp(result, "ok") == 0;
        ck_assert_msg(ok == (remedy == NULL) && (ok || remedy[0] != '\0'), "%s: remedy %s",
            json_string_value(json_object_get(finding, "check")), remedy ? remedy : "none");
    }
}

void findings_take(const char *text)
{
    json_error_t error;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json_is_object(object), "no JSON object: %s: %s", error.text, text);
    json_decref(findings);
    findings = json_incref(json_object_get(object, "findings"));
    ck_assert(json_array_size(findings) > 0);
    json_decref(object);
    check_remedies();
}

void found(const char *check, const char *result, const char *value, const char *remedy)
{
    size_t i;
    const json_t *finding;
    json_array_foreach(findings, i, finding)
    {
        if (strcmp(json_string_value(json_object_get(finding, "check")), check) != 0)
            continue;
        const char *what = json_string_value(json_object_get(finding, "value"));
        const char *mend = json_string_value(json_object_get(finding, "remedy"));
        ck_assert_msg(strcmp(json_string_value(json_object_get(finding, "result")), result) == 0,
            "%s is not %s: %s", check, result, what);
        ck_assert_msg(!value || strstr(what, value), "%s lacks \"%s\": %s", check, value, what);
        ck_assert_msg(!remedy || (mend && strstr(mend, remedy)), "%s: the remedy lacks \"%s\": %s",
            check, remedy, mend ? mend : "(none)");
        return;
    }
    ck_abort_msg("nothing is found of %s", check);
}

void findings_drop(void)
{
    json_decref(findings);
    findings = NULL;
}
