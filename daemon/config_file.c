/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration files: see config_private.h. inih takes lines apart; the lines come through our
 * own reader, which counts them, so that whatever is wrong is told with its file and line.
 */
#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config_private.h"
#include "status.h"

#define SYSTEM_FILE "/etc/f8gatherd/f8gatherd.conf"
#define SECTION     "f8gatherd"
#define SUFFIX      ".conf"

/* A file while it is read. */
struct reading {
    struct config_draft *draft; /* borrowed */
    struct reason *reason;      /* borrowed */
    const char *path;           /* borrowed */
    FILE *file;                 /* owned */
    int line;
    int failed;                    /* the line of the first thing that was wrong; 0: none */
    int seen[CONFIG_NUM_SETTINGS]; /* by setting: the line that set it; 0: none */
};

/* inih tells of sections only with their keys; one that has none is wrong as well. */
static void check_section(struct reading *reading, const char *text)
{
    const char *end = strchr(text, ']');
    if (reading->failed > 0 || text[0] != '[' || !end)
        return;
    int length = (int)(end - text) + 1;
    if (strncmp(text, "[" SECTION "]", (size_t)length) == 0 &&
        (size_t)length == sizeof(SECTION) + 1)
        return;
    reading->failed = reading->line;
    (void)reason_set(reading->reason, F8_EINVAL,
        "%s:%d: %.*s is no section of f8gatherd: there is only [" SECTION "]", reading->path,
        reading->line, length, text);
}

/*
 * ini_reader: as fgets. A line that does not fit would reach inih as two, and one that is indented
 * as more of the value before it, which nothing here has.
 */
static char *next_line(char *text, int size, void *stream)
{
    struct reading *reading = stream;
    if (!fgets(text, size, reading->file))
        return NULL;
    reading->line++;
    if (strchr(text, '\n') || feof(reading->file)) {
        size_t blanks = strspn(text, " \t");
        memmove(text, text + blanks, strlen(text + blanks) + 1);
        check_section(reading, text);
        return text;
    }
    if (reading->failed == 0) {
        reading->failed = reading->line;
        (void)reason_set(reading->reason, F8_EINVAL,
            "%s:%d: the line has more than %d bytes, or a zero byte", reading->path, reading->line,
            size - 2);
    }
    return NULL;
}

static int set_key(struct reading *reading, const char *section, const char *key, const char *value)
{
    struct reason *reason = reading->reason;
    const struct config_setting *setting = config_find(key);
    if (section[0] != '\0' && strcmp(section, SECTION) != 0)
        return reason_set(reason, F8_EINVAL,
            "%s:%d: %s is in section [%s], but there is only [" SECTION "]", reading->path,
            reading->line, key, section);
    if (!setting)
        return reason_set(reason, F8_EINVAL, "%s:%d: %s is no setting of f8gatherd: see --help",
            reading->path, reading->line, key);
    int *seen = &reading->seen[setting - config_settings];
    if (*seen > 0)
        return reason_set(reason, F8_EINVAL, "%s:%d: %s is set by line %d already", reading->path,
            reading->line, key, *seen);
    *seen = reading->line;
    char origin[CONFIG_TEXT_SIZE], from[CONFIG_TEXT_SIZE];
    (void)snprintf(origin, sizeof(origin), "%.300s:%d", reading->path, reading->line);
    (void)snprintf(from, sizeof(from), "%.200s:%d: %s", reading->path, reading->line, key);
    return config_set(reading->draft, setting, from, origin, value, reason);
}

/* ini_handler: 1 to go on. inih goes on after what is wrong, too; only the first is told. */
static int on_key(void *context, const char *section, const char *key, const char *value)
{
    struct reading *reading = context;
    if (reading->failed > 0)
        return 0;
    if (set_key(reading, section, key, value) == F8_OK)
        return 1;
    reading->failed = reading->line;
    return 0;
}

static int read_lines(struct reading *reading)
{
    int first = ini_parse_stream(next_line, reading, on_key, reading);
    if (first < 0)
        return reason_set(reading->reason, F8_ENOMEM, "out of memory reading %s", reading->path);
    if (ferror(reading->file))
        return reason_set(reading->reason, F8_EINVAL, "cannot read the configuration %s: %s",
            reading->path, strerror(errno));
    if (first > 0 && (reading->failed == 0 || first < reading->failed))
        return reason_set(reading->reason, F8_EINVAL,
            "%s:%d: this is neither KEY = VALUE nor [" SECTION "] nor a comment", reading->path,
            first);
    return reading->failed > 0 ? F8_EINVAL : F8_OK;
}

static int read_file(
    struct config_draft *draft, const char *path, bool optional, struct reason *reason)
{
    struct reading reading = {.draft = draft, .reason = reason, .path = path};
    reading.file = fopen(path, "re");
    if (!reading.file && optional && (errno == ENOENT || errno == ENOTDIR))
        return F8_OK;
    if (!reading.file)
        return reason_set(
            reason, F8_EINVAL, "cannot open the configuration %s: %s", path, strerror(errno));
    int status = read_lines(&reading);
    (void)fclose(reading.file);
    return status;
}

static int is_wanted(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), end = strlen(SUFFIX);
    return entry->d_name[0] != '.' && length > end &&
           strcmp(entry->d_name + length - end, SUFFIX) == 0;
}

static int read_directory(struct config_draft *draft, const char *directory, struct reason *reason)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, is_wanted, alphasort);
    if (count < 0 && (errno == ENOENT || errno == ENOTDIR))
        return F8_OK;
    if (count < 0)
        return reason_set(
            reason, F8_EINVAL, "cannot read the directory %s: %s", directory, strerror(errno));
    int status = F8_OK;
    for (int i = 0; i < count; i++) {
        char path[4096];
        (void)snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
        if (status == F8_OK)
            status = read_file(draft, path, false, reason);
        free(entries[i]);
    }
    free(entries);
    return status;
}

int config_read_files(struct config_draft *draft, const char *path, struct reason *reason)
{
    char directory[2048];
    const char *file = path ? path : SYSTEM_FILE;
    if (strlen(file) + sizeof(".d") > sizeof(directory))
        return reason_set(reason, F8_EINVAL, "the path of the configuration %s is too long", file);
    (void)snprintf(directory, sizeof(directory), "%s.d", file);
    int status = read_file(draft, file, path == NULL, reason);
    return status < 0 ? status : read_directory(draft, directory, reason);
}
