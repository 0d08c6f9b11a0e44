/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment that the simulator obeys, read once, at the first CUDA call of the process; the
 * list is in README.md. A value that makes no sense is a fault.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct settings settings;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

static uint64_t number_of(const char *name, uint64_t default_value, uint64_t max)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return default_value;
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || *text == '-' || value > max)
        cudasim_fault(
            "%s is \"%s\": give a number up to %llu", name, text, (unsigned long long)max);
    return value;
}

/* As CUDA_VISIBLE_DEVICES: the list ends at the first number that is no device. */
static void read_visible(void)
{
    const char *text = getenv("CUDASIM_VISIBLE");
    if (!text) {
        for (int i = 0; i < settings.num_devices; i++)
            settings.visible[settings.num_visible++] = i;
        return;
    }
    while (*text && settings.num_visible < CUDASIM_MAX_DEVICES) {
        char *end;
        long device = strtol(text, &end, 10);
        if (end == text || device < 0 || device >= settings.num_devices)
            return;
        settings.visible[settings.num_visible++] = (int)device;
        text = *end == ',' ? end + 1 : end;
    }
}

static void settings_read(void)
{
    settings.num_devices = (int)number_of("CUDASIM_DEVICES", 2, CUDASIM_MAX_DEVICES);
    settings.delay_us = number_of("CUDASIM_DELAY_US", 0, 60 * 1000 * 1000);
    settings.seed = number_of("CUDASIM_SEED", 0, UINT64_MAX);
    settings.driver_version = (int)number_of("CUDASIM_DRIVER_VERSION", 13000, 1000000);
    settings.memory = number_of("CUDASIM_MEMORY", (uint64_t)16 << 30, (uint64_t)1 << 40);
    settings.stats = getenv("CUDASIM_STATS");
    if (settings.stats)
        settings.stats = strdup(settings.stats);
    read_visible();
}

const struct settings *settings_get(void)
{
    pthread_once(&settings_once, settings_read);
    return &settings;
}
