/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl top: what the daemon does, live. On a terminal it takes the screen and keys; elsewhere it
 * prints --count frames one after the other, and with --json one object a frame. Called by main
 * with a connected channel, which it opens anew where the daemon was restarted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/sort.h"
#include "client/ctl/top.h"

/* How long a daemon that hangs is waited for, unless --timeout says. */
#define PATIENCE_MS 2000

/* Monotonic. */
static int64_t now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* ---- frames one after the other ---- */

static int print_frame(struct top *top)
{
    char *text;

    if (top->ctl->json) {
        return top_print_json(top);
    }
    text = top_text(top, 0, false);
    if (text == NULL) {
        fprintf(stderr, "f8ctl: no memory for a frame\n");
        return CTL_REFUSED;
    }
    printf("%s\n", text);
    free(text);
    return CTL_OK;
}

static void sleep_until(int64_t due)
{
    int64_t left = due - now_ms();
    struct timespec rest = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};

    if (left > 0) {
        (void)nanosleep(&rest, NULL);
    }
}

/* Each shows what has changed since the one before; the first look only begins that. */
static int print_frames(struct top *top)
{
    int64_t due = now_ms();
    int result = CTL_OK;

    top_take(top);
    for (uint32_t i = 0; (top->ctl->count == 0 || i < top->ctl->count) && result == CTL_OK; i++) {
        due += top->ctl->interval_ms;
        sleep_until(due);
        due = due < now_ms() ? now_ms() : due; /* frames that were missed are not made up for */
        top_take(top);
        result = print_frame(top);
        if (result == CTL_OK && fflush(stdout) != 0) {
            fprintf(stderr, "f8ctl: standard output: %s\n", strerror(errno));
            result = CTL_REFUSED;
        }
    }
    return result == CTL_OK && !top->connected ? CTL_NO_DAEMON : result;
}

/* ---- the screen ---- */

static void sort_by(struct top *top, const char *title, bool descending)
{
    top->sort = sort_find(&columns_top, title);
    top->descending = descending;
    top_sort(top);
}

static void move_column(struct top *top, int by)
{
    size_t count = columns_top.count, at = (size_t)(top->sort - columns_top.columns);

    top->sort = &columns_top.columns[(at + count + (size_t)by) % count];
    top_sort(top);
}

/* False: that was the end. */
static bool take_key(struct top *top, int key)
{
    switch (key) {
    case 'q':
    case -1: /* the terminal is gone */
        return false;
    case 's':
        sort_by(top, "saturated/s", true);
        return true;
    case 't':
        sort_by(top, "stale/s", true);
        return true;
    case 'g':
        sort_by(top, "gathers/s", true);
        return true;
    case 'a':
        sort_by(top, "amax", true);
        return true;
    case 'n':
        sort_by(top, "name", false);
        return true;
    case '<':
    case '>':
        move_column(top, key == '<' ? -1 : 1);
        return true;
    case 'r':
        top->descending = !top->descending;
        top_sort(top);
        return true;
    default:
        return true;
    }
}

static void draw(const struct top *top)
{
    char *text = top_text(top, top_screen_lines(), true);

    if (text != NULL) {
        top_screen_draw(text);
    }
    free(text);
}

static int show_screen(struct top *top)
{
    uint32_t frames = 0;
    bool goes_on = true;

    top_screen_open();
    while (goes_on && (top->ctl->count == 0 || frames++ < top->ctl->count)) {
        int64_t due = now_ms() + top->ctl->interval_ms, left;

        top_take(top);
        draw(top);
        while (goes_on && (left = due - now_ms()) > 0) {
            goes_on = take_key(top, top_screen_key((int)left));
            draw(top);
        }
    }
    top_screen_close();
    return CTL_OK;
}

int command_top(struct ctl *ctl)
{
    bool screen = isatty(STDOUT_FILENO) && !ctl->json;
    struct top top = {.ctl = ctl, .sort = ctl->sort_column, .descending = ctl->descending};
    int result;

    if (!screen && !ctl->json && ctl->count == 0) {
        fprintf(stderr, "f8ctl: top: standard output is no terminal: give --count N or --json\n");
        return CTL_USAGE;
    }
    if (top.sort == NULL) {
        top.sort = sort_find(&columns_top, "saturated/s");
        top.descending = true;
    }
    if (!ctl->timeout_given) {
        ctl->timeout_ms = PATIENCE_MS;
    }
    result = screen ? show_screen(&top) : print_frames(&top);
    top_done(&top);
    return result;
}
