/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal of f8ctl top: see top.h. Plain ANSI sequences on the alternate screen, keys without
 * waiting for a line. A signal that ends or stops f8ctl finds the terminal as it was before; that
 * is done in the handler, with calls that are allowed there, so that it holds whatever f8ctl waits
 * for.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "client/ctl/top.h"

/* The alternate screen, no cursor, lines that are cut and not wrapped; and back. */
#define ENTER "\033[?1049h\033[?25l\033[?7l"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"

#define LINES_UNKNOWN 24

static struct {
    struct termios saved;
    volatile sig_atomic_t open, has_keys, resized;
} screen;

/* Whole, also in a handler. A terminal that is gone takes nothing, and that is all right. */
static void put(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, text, size);
        struct pollfd full = {.fd = STDOUT_FILENO, .events = POLLOUT};

        if (n > 0) {
            text += n;
            size -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            (void)poll(&full, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return;
        }
    }
}

static void enter(void)
{
    struct termios keys = screen.saved;

    if (screen.has_keys) {
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        keys.c_cc[VMIN] = 1;
        keys.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    }
    put(ENTER, sizeof(ENTER) - 1);
}

static void leave(void)
{
    put(LEAVE, sizeof(LEAVE) - 1);
    if (screen.has_keys) {
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &screen.saved);
    }
}

static void on_end(int number)
{
    int error = errno;

    if (screen.open) {
        screen.open = 0;
        leave();
    }
    (void)signal(number, SIG_DFL);
    (void)raise(number); /* once the handler has returned */
    errno = error;
}

/* Ctrl-Z: the shell gets its terminal, and we get it back when we go on. */
static void on_stop(int number)
{
    int error = errno;

    (void)number;
    if (screen.open) {
        leave();
    }
    (void)raise(SIGSTOP);
    if (screen.open) {
        enter();
    }
    screen.resized = 1;
    errno = error;
}

static void on_resize(int number)
{
    (void)number;
    screen.resized = 1;
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

void top_screen_open(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    screen.has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.saved) == 0;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        handle(ends[i], on_end);
    }
    handle(SIGTSTP, on_stop);
    handle(SIGWINCH, on_resize);
    screen.open = 1;
    enter();
}

void top_screen_close(void)
{
    if (screen.open) {
        screen.open = 0;
        leave();
    }
}

static void ask_size(unsigned int *ret_lines, unsigned int *ret_columns)
{
    struct winsize size = {0};

    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *ret_lines = size.ws_row > 0 ? size.ws_row : LINES_UNKNOWN;
    *ret_columns = size.ws_col > 0 ? size.ws_col : 80;
}

unsigned int top_screen_lines(void)
{
    unsigned int lines, columns;

    ask_size(&lines, &columns);
    return lines;
}

/* Bytes of a colour's sequence at the text; 0: there is none. */
static size_t sequence_at(const char *text)
{
    size_t size = 2;

    if (text[0] != '\033' || text[1] != '[') {
        return 0;
    }
    while (text[size] != '\0' && text[size] != 'm') {
        size++;
    }
    return size + (text[size] == 'm');
}

/* A line as far as the terminal is wide; gives where the next one begins. */
static const char *copy_line(FILE *to, const char *text, unsigned int columns)
{
    unsigned int used = 0;

    while (*text != '\0' && *text != '\n') {
        size_t sequence = sequence_at(text);
        bool continues = ((unsigned char)*text & 0xc0) == 0x80;

        if (sequence > 0) {
            fwrite(text, 1, sequence, to);
            text += sequence;
            continue;
        }
        used += !continues;
        if (used <= columns) {
            putc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, to);
        }
        text++;
    }
    fputs("\033[0m", to);
    return *text == '\n' ? text + 1 : text;
}

void top_screen_draw(const char *text)
{
    unsigned int lines, columns, line = 0;
    char *bytes = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&bytes, &size);

    if (to == NULL) {
        return; /* the next frame may have the memory */
    }
    ask_size(&lines, &columns);
    fputs("\033[H", to);
    for (; *text != '\0' && line < lines; line++) {
        /* erased first: behind a line that fills the width the cursor stands on its last letter */
        fputs(line > 0 ? "\r\n\033[K" : "\033[K", to);
        text = copy_line(to, text, columns);
    }
    fputs(line < lines ? "\r\n\033[J" : "", to);
    if (fclose(to) == 0) {
        put(bytes, size);
    }
    free(bytes);
}

int top_screen_key(int milliseconds)
{
    struct pollfd keys = {.fd = screen.has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    unsigned char key;

    if (screen.resized || poll(&keys, 1, milliseconds) <= 0) {
        screen.resized = 0;
        return 0;
    }
    return read(STDIN_FILENO, &key, 1) == 1 ? key : -1;
}
