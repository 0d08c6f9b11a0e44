/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench: runs the main job of f8gather with real processes, checks every byte, and measures.
 * main reads the command line and the model, has run.c run it, and reports. Exit status: 0 all
 * was well, 1 it was not, 2 the command line is wrong, 130 interrupted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/exchange_command.h"
#include "client/bench/report.h"
#include "client/bench/run.h"

static const char usage[] = "usage: f8bench run [OPTION]...\n"
                            "       f8bench exchange [OPTION]...\n"
                            "       f8bench --help | --version\n"
                            "\n"
                            "run: a training job's gathers against f8gatherd, checked and "
                            "measured.\n"
                            "exchange: the same bytes between hosts over plain TCP.\n"
                            "Each lists its options with --help.\n";

static int load_files(const struct options *options, const struct model_options *how,
    struct safetensors_file *files, struct model *model, struct bench_error *error)
{
    for (uint32_t i = 0; i < options->num_weights; i++) {
        if (safetensors_open(options->weights[i], &files[i], error) != 0) {
            return -1;
        }
    }
    return model_from_files(files, options->num_weights, how, model, error);
}

static int report(const struct options *options, const struct model *model,
    const struct outcome *outcome, const struct summary *summary)
{
    struct report what = {
        .options = options, .model = model, .outcome = outcome, .summary = summary};

    if (options->json) {
        if (report_json(&what) != 0) {
            fprintf(stderr, "f8bench: cannot write the report: out of memory or disk\n");
            return 1;
        }
        if (outcome->ctl != NULL) {
            fputs(outcome->ctl, stderr);
        }
    } else {
        report_text(&what);
    }
    if (outcome->interrupted) {
        return 130;
    }
    return summary->ok ? 0 : 1;
}

static int run(const struct options *options)
{
    struct model_options how = {
        .dtype = options->dtype, .flavour = options->flavour, .blocks = options->blocks};
    struct safetensors_file files[OPTIONS_MAX_FILES] = {{0}};
    struct model model = {0};
    struct outcome outcome = {0};
    struct summary summary = {0};
    struct bench_error error;
    int status = 1;
    int result = options->num_weights > 0 ? load_files(options, &how, files, &model, &error)
                                          : model_builtin(options->model, &how, &model, &error);

    if (result == 0) {
        run_bench(options, &model, &outcome);
        summary_make(options, &model, &outcome, &summary);
        status = report(options, &model, &outcome, &summary);
    } else {
        if (options->num_weights == 0) {
            fprintf(stderr, "f8bench: --model %s: %s\n", options->model, error.text);
            status = 2;
        } else if (!options->json || report_json_error(error.text) != 0) {
            fprintf(stderr, "f8bench: %s\n", error.text);
        }
    }
    summary_done(&summary);
    run_outcome_done(&outcome);
    model_done(&model);
    for (uint32_t i = 0; i < options->num_weights; i++) {
        safetensors_close(&files[i]);
    }
    return status;
}

/* The exit status, unless standard output did not take what we printed. */
static int when_printed(int status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
        fprintf(stderr, "f8bench: standard output: %s\n", strerror(errno));
        return 1;
    }
    return status;
}

int main(int argc, char **argv)
{
    struct options options;
    const char *verb = argc > 1 ? argv[1] : "";
    int parsed;

    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (strcmp(verb, "--version") == 0) {
        printf("f8bench %s\n", F8_VERSION);
        return 0;
    }
    if (strcmp(verb, "exchange") == 0) {
        return when_printed(exchange_command(argc - 1, argv + 1));
    }
    if (strcmp(verb, "run") != 0) {
        fprintf(stderr, "f8bench: %s%s%s\n%s", verb[0] != '\0' ? "no command is called " : "",
            verb[0] != '\0' ? verb : "a command is missing", "", usage);
        return 2;
    }
    parsed = options_parse(argc - 1, argv + 1, &options);
    if (parsed != 0) {
        return parsed > 0 ? 0 : 2;
    }
    return when_printed(run(&options));
}
