/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernels this CPU runs: every level starts as a copy of the one below it, so what an
 * instruction set does not do better keeps the slower kernel. Decided once, on the first call, by
 * whichever thread comes first; read-only afterwards.
 *
 * F8K_CPU_DISABLE is for tests only: a comma-separated list of CPU features ("avx2", "f16c",
 * "fma") that are taken as absent. It is read once, with the first call.
 */
#include "kernels/variants.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if F8K_X86
#include <cpuid.h>
#endif

#define MAX_VARIANTS 3 /* ref, avx2, avx512 */

static struct f8k_ops variants[MAX_VARIANTS];
static size_t variant_count;
static pthread_once_t variants_once = PTHREAD_ONCE_INIT;

#if F8K_X86
static bool disabled(const char *feature)
{
    const char *list = getenv("F8K_CPU_DISABLE");
    size_t length = strlen(feature);
    while (list && *list) {
        size_t item = strcspn(list, ",");
        if (item == length && memcmp(list, feature, length) == 0)
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

/* cpuid, not __builtin_cpu_supports: compilers differ in which names they take. */
static bool cpu_has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

/* The builtin for avx2 also asks whether the kernel saves the wide registers. */
static bool cpu_runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c() &&
           !disabled("avx2") && !disabled("fma") && !disabled("f16c");
}
#endif

static void fill_variants(void)
{
    f8k_ref_init(&variants[variant_count++]);
#if F8K_X86
    if (cpu_runs_avx2()) {
        variants[variant_count] = variants[variant_count - 1];
        f8k_avx2_init(&variants[variant_count++]);
    }
#endif
}

const struct f8k_ops *f8k_variant(size_t i)
{
    pthread_once(&variants_once, fill_variants);
    return i < variant_count ? &variants[i] : NULL;
}

const struct f8k_ops *f8k_ops(void)
{
    pthread_once(&variants_once, fill_variants);
    return &variants[variant_count - 1];
}
