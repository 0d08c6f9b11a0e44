/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of settings, and the first difference of two. Called as settings.h says.
 */
#include "settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/layout.h"
#include "client/bench/probe.h"
#include "client/bench/shared.h"
#include "proto/protocol.h"

/* FNV-1a, which differs where anything does, but by chance. */
static void mix(uint64_t *digest, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        *digest = (*digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
}

/* Of a file's weight some thousand values: enough to tell another file of the same shapes. */
static void mix_data(uint64_t *digest, const struct model_weight *weight)
{
    uint64_t size = model_source_size(weight);
    uint64_t count = model_elements(weight);
    uint64_t stride = count / 4096 + 1;

    for (uint64_t i = 0; weight->data != NULL && i < count; i += stride) {
        mix(digest, (const uint8_t *)weight->data + i * size, size);
    }
}

/* Of all weights: names, shapes, types, and what files have of their values. */
static uint64_t digest_of(const struct model *model)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < model->num_weights; i++) {
        const struct model_weight *weight = &model->weights[i];
        mix(&digest, weight->name, strlen(weight->name) + 1);
        mix(&digest, weight->shape, weight->ndim * sizeof(weight->shape[0]));
        mix(&digest, &weight->dtype, sizeof(weight->dtype));
        mix(&digest, &weight->flavour, sizeof(weight->flavour));
        mix_data(&digest, weight);
    }
    return digest;
}

/* Ports are not told: only host 0 has one. */
static void print_addresses(FILE *to, const struct addresses *addresses)
{
    fprintf(to, "--hosts ");
    for (uint32_t host = 0; host < addresses->count; host++) {
        char text[INET6_ADDRSTRLEN];
        addresses_text(addresses, host, text, sizeof(text));
        fprintf(to, "%s%s", host > 0 ? "," : "", text);
    }
    fprintf(to, "\n");
}

/* What is sent between them as it lies in memory must be of one form. */
static void print_program(FILE *to)
{
    const uint32_t one = 1;

    fprintf(to, "f8bench " F8_VERSION ", built for %s endian with reports of %zu and %zu bytes\n",
        *(const uint8_t *)&one == 1 ? "little" : "big", sizeof(struct shared_rank),
        sizeof(struct probe));
}

static void print_model(FILE *to, const struct model *model)
{
    fprintf(to, "%s %s\n",
        model->num_weights > 0 && model->weights[0].data != NULL ? "--weights" : "--model",
        model->name);
    fprintf(to, "weights: %" PRIu32 " in %" PRIu32 " buckets (digest %016" PRIx64 ")\n",
        model->num_weights, model->num_buckets, digest_of(model));
}

static void print_flags(FILE *to, const struct options *options)
{
    fprintf(to, "--ranks %" PRIu32 "\n", options->ranks);
    fprintf(to, "--mesh dp=%" PRIu32 ",tp=%" PRIu32 "\n", options->dp, options->tp);
    fprintf(to, "--hsdp %" PRIu32 "\n", options->hsdp);
    fprintf(to, "--steps %" PRIu32 "\n", options->steps);
    fprintf(to, "--seed %" PRIu64 "\n", options->seed);
    fprintf(to, "--flavour %s\n", f8_proto_flavour_name(options->flavour));
    fprintf(to, "--history %" PRIu32 "\n", options->history_length);
    fprintf(
        to, "--history-algorithm %s\n", options->history == F8_HISTORY_MAX ? "max" : "most-recent");
    fprintf(to, "--fp8 %s\n", f8_proto_format_name(options->format));
    fprintf(to, "--dtype %s\n", f8_proto_dtype_name(options->dtype));
    fprintf(to, "--power-of-two %s\n", options->power_of_two ? "given" : "not given");
    fprintf(to, "--slots %" PRIu32 "\n", options->slots);
    fprintf(to, "--no-precompute %s\n", options->precompute ? "not given" : "given");
    fprintf(to, "--pre-gather %s\n", options->pre_gather ? "given" : "not given");
    fprintf(to, "--device %s\n", options_device_name(options));
    fprintf(to, "--check %" PRIu32 "\n", options->check_every);
    fprintf(to, "--plant %s\n",
        options->plant != PLANT_NONE ? options_plant_name(options->plant) : "none");
    fprintf(to, "--torch %s\n", options->torch ? "given" : "not given");
}

char *settings_text(const struct options *options, const struct model *model)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (to == NULL) {
        return NULL;
    }
    print_program(to);
    print_addresses(to, &options->addresses);
    print_flags(to, options);
    print_model(to, model);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Of two lines that differ; what comes from another machine is cut, and not all of it shown. */
static int tell(const char *theirs, const char *ours, struct bench_error *error)
{
    int theirs_length = (int)strcspn(theirs, "\n");
    int ours_length = (int)strcspn(ours, "\n");
    int name = (int)strcspn(ours, " \n");

    if (strncmp(ours, "--", 2) == 0 && strncmp(theirs, ours, (size_t)name + 1) == 0) {
        return bench_fail(error, "%.*s is %.*s, and on host 0 it is %.*s", name, ours,
            theirs_length - name - 1 < 200 ? theirs_length - name - 1 : 200, theirs + name + 1,
            ours_length - name - 1 < 200 ? ours_length - name - 1 : 200, ours + name + 1);
    }
    return bench_fail(error, "%.*s; on host 0: %.*s", theirs_length < 200 ? theirs_length : 200,
        theirs, ours_length < 200 ? ours_length : 200, ours);
}

int settings_compare(const char *theirs, const char *of_host_0, struct bench_error *error)
{
    while (*theirs != '\0' || *of_host_0 != '\0') {
        size_t length = strcspn(of_host_0, "\n");
        if (strncmp(theirs, of_host_0, length) != 0 || theirs[length] != of_host_0[length]) {
            return tell(theirs, of_host_0, error);
        }
        theirs += length + (theirs[length] == '\n');
        of_host_0 += length + (of_host_0[length] == '\n');
    }
    return 0;
}
