/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How f8ctl history draws: in ASCII and in braille, as wide as the terminal, on a terminal of its
 * own accord and elsewhere on demand; drawings in files, and ways to show that exclude each other.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/ctl_run.h"
#include "lib/ctl_terminal.h"
#include "lib/fake_fleet.h"
#include "lib/suite.h"

#define TEXT  (1 << 18)
#define NAME  "model.layers.2.mlp.weight"
#define ZEROS "'</svg></table></style><!-- & &amp; ]]>'" /* hostile, and with zeros in it */

static struct fake_daemon fake;
static char text[TEXT];

static void ask(const char *environment, const char *arguments, int status)
{
    char all[512];
    setenv("LC_ALL", environment, 1);
    fake_start(&fake, fleet_serve);
    (void)snprintf(all, sizeof(all), "--socket %s %s", fake.socket, arguments);
    int got = ctl_run(all, text, sizeof(text));
    fake_stop(&fake);
    unsetenv("LC_ALL");
    ck_assert_msg(got == status, "%s: status %d: %.2000s", arguments, got, text);
}

static void ask_terminal(const char *environment, const char *arguments, int columns)
{
    char all[512];
    fake_start(&fake, fleet_serve);
    (void)snprintf(all, sizeof(all), "--socket %s %s", fake.socket, arguments);
    int got = ctl_run_on_terminal(environment, all, columns, text, sizeof(text));
    fake_stop(&fake);
    ck_assert_msg(got == 0, "%s: status %d: %.2000s", arguments, got, text);
}

static void has(const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in: %.2000s", part, text);
}

static void has_not(const char *part)
{
    ck_assert_msg(strstr(text, part) == NULL, "\"%s\" in: %.2000s", part, text);
}

/* Characters of the longest line, UTF-8 and colours apart. */
static size_t widest(void)
{
    size_t width = 0, most = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\033') {
            at += strcspn(at, "m");
        } else if (*at == '\n') {
            width = 0;
        } else if (((unsigned char)*at & 0xc0) != 0x80) {
            width++;
        }
        most = width > most ? width : most;
    }
    return most;
}

/* Gaps where amaxes are zero; scales by steps of powers of two. */
START_TEST(ascii_is_drawn_exactly)
{
    static const char expected[] = "    amax\n"
                                   "        |                      ***  **  \n"
                                   "     2^0+                    ***     ***\n"
                                   "        |                  ***          \n"
                                   "    2^-2+**              ***            \n"
                                   "        |                *              \n"
                                   "    2^-4+    ***     **                 \n"
                                   "        |      *******                  \n"
                                   "          ____        ___        ____   \n"
                                   "        +-------------------------------\n"
                                   "         895                        1024\n"
                                   "   scale\n"
                                   "        |     *********                 \n"
                                   "     2^6+   **        ***               \n"
                                   "        | **            ***             \n"
                                   "        | *               *             \n"
                                   "     2^4+**               ***           \n"
                                   "        |                   **        **\n"
                                   "     2^2+                     ********* \n"
                                   "        +-------------------------------\n"
                                   "         895                        1024\n"
                                   "         N: not a number, I: infinite, _: zero\n";
    setenv("COLUMNS", "40", 1);
    ask("C", "history " ZEROS " --plot --last 130", 0);
    unsetenv("COLUMNS");
    ck_assert_str_eq(strchr(text, '\n') + 1, expected);
}
END_TEST

START_TEST(utf8_is_braille)
{
    ask("C.UTF-8", "history " NAME " --plot", 0);
    has("┤");
    has("⡀"); /* some character with dots */
    has_not("*");
    has_not("N: not a number");
    ck_assert_uint_eq(widest(), 80); /* of a pipe without COLUMNS */
}
END_TEST

START_TEST(marks_are_told_apart)
{
    ask("C", "history \"<script>alert('name')</script>\" --plot", 0);
    has("N");
    ask("C", "history '\"><img src=http://example.invalid/x onerror=alert(1)>' --plot", 0);
    has("I");
    has("I: infinite");
}
END_TEST

START_TEST(terminals_get_plots)
{
    ask_terminal("LC_ALL=C", "history " NAME " --last 40", 60);
    has("\033[36m"); /* the curve */
    has("        +---");
    ck_assert_uint_eq(widest(), 60);
    ask_terminal("LC_ALL=C.UTF-8", "history " NAME, 133);
    ck_assert_uint_eq(widest(), 133);
    ask_terminal("LC_ALL=C NO_COLOR=1", "history " NAME, 60);
    has_not("\033");
    has("        +---");
    ask_terminal("", "history " NAME " --table --last 3", 60);
    has("SYNC");
    has("\n1024 ");
    ask("C", "history " NAME " --last 3", 0);
    ck_assert_ptr_nonnull(strstr(text, "\nSYNC "));
    has_not("\033");
}
END_TEST

START_TEST(one_sync_is_a_dot)
{
    ask("C", "history " NAME " --last 1 --plot", 0);
    has("*");
    has("         1024\n");
}
END_TEST

/* How often a text is in the file. */
static int count_in_file(const char *path, const char *part)
{
    int count = 0;
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    text[size] = '\0';
    (void)fclose(file);
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

START_TEST(drawings_are_files)
{
    char directory[] = "/tmp/f8-plot-XXXXXX", path[64], arguments[256];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/w.svg", directory);
    (void)snprintf(arguments, sizeof(arguments), "history " NAME " --svg %s", path);
    ask("C", arguments, 0);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(count_in_file(path, "<svg xmlns=\"http://www.w3.org/2000/svg\""), 1);
    ck_assert_int_eq(count_in_file(path, "prefers-color-scheme:dark"), 1);
    ck_assert_int_eq(count_in_file(path, "<path class=\"amax\" d=\"M46.0 "), 1);
    ck_assert_int_eq(count_in_file(path, "<path class=\"scale\""), 1);
    ask("C", arguments, 1);
    has("w.svg is there already: --force replaces it\n");
    (void)strcat(arguments, " --force --json --last 2");
    ask("C", arguments, 0);
    has("\"syncs\":[{\"sync\":1023,");
    ck_assert_int_eq(count_in_file(path, "sync 1023</text>"), 1);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(directory), 0); /* nothing else is left */
    (void)snprintf(arguments, sizeof(arguments), "history " NAME " --svg %s/none/w.svg", directory);
    ask("C", arguments, 1);
    has("cannot be made: No such file or directory");
    ask("C", "history " ZEROS " --svg -", 0);
    has("<rect class=\"zero\"");
    has("&lt;/svg&gt;&lt;/table&gt;&lt;/style&gt;&lt;!-- &amp; &amp;amp; ]]&gt;, group dp");
    has("sync 1 to 11: zero</title>");
}
END_TEST

START_TEST(ways_exclude_each_other)
{
    ask("C", "history " NAME " --plot --table", 2);
    has("--plot, --table and --json are three ways");
    ask("C", "history " NAME " --plot --json", 2);
    ask("C", "history " NAME " --svg - --json", 2);
    has("--svg - leaves no place for --json");
    ask("C", "history " NAME " --svg x.svg --plot", 2);
    has("leaves no place for --plot");
    ask("C", "weights --plot", 2);
    has("weights: takes no --plot");
}
END_TEST

/* Whoever reads the begin only closes the pipe, and hears nothing of it. */
START_TEST(closed_pipes_are_no_trouble)
{
    ask("C", "history " NAME " | head -n 1", 0);
    ck_assert_str_eq(text, NAME ", group dp of job run<b>, uid 1000\n");
    ask("C", "report --html - | head -n 1", 0);
    ck_assert_str_eq(text, "<!DOCTYPE html>\n");
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("ctl_plot");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, ascii_is_drawn_exactly);
    tcase_add_test(cases, utf8_is_braille);
    tcase_add_test(cases, marks_are_told_apart);
    tcase_add_test(cases, terminals_get_plots);
    tcase_add_test(cases, one_sync_is_a_dot);
    tcase_add_test(cases, drawings_are_files);
    tcase_add_test(cases, ways_exclude_each_other);
    tcase_add_test(cases, closed_pipes_are_no_trouble);
    return run_suite("ctl_plot", cases);
}
