/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F8K_CPU_DISABLE takes CPU features away, and the dispatch is decided once. Each case runs in a
 * child of its own (whatever CK_FORK says), because a process chooses its kernels only once.
 */
#include "kernels/variants.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8

static void *first_call(void *arg)
{
    pthread_barrier_t *barrier = arg;
    pthread_barrier_wait(barrier);
    return (void *)(uintptr_t)f8k_ops();
}

/* In the child: all threads ask at once; true if all get the same best variant, named `want`. */
static bool all_threads_get(const char *want)
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, first_call, &barrier) != 0)
            return false;
    bool same = true;
    for (int i = 0; i < THREADS; i++) {
        void *ops = NULL;
        pthread_join(threads[i], &ops);
        same = same && ops == (const void *)f8k_ops();
    }
    pthread_barrier_destroy(&barrier);
    return same && strcmp(f8k_ops()->name, want) == 0;
}

/* Whether a process with F8K_CPU_DISABLE=`list` (NULL: unset) chooses the variant `want`. */
static bool chooses(const char *list, const char *want)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (list)
            setenv("F8K_CPU_DISABLE", list, 1);
        else
            unsetenv("F8K_CPU_DISABLE");
        bool ref_first = strcmp(f8k_variant(0)->name, "ref") == 0;
        bool none_after = strcmp(want, "ref") != 0 || f8k_variant(1) == NULL;
        _exit(ref_first && none_after && all_threads_get(want) ? 0 : 1);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char *best_here(void)
{
#if F8K_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "avx2";
#endif
    return "ref";
}

START_TEST(disabled_features_leave_ref)
{
    ck_assert(chooses("avx2", "ref"));
    ck_assert(chooses("f16c", "ref"));
    ck_assert(chooses("sse9,fma", "ref"));
    ck_assert(chooses("fma,avx2,", "ref"));
}
END_TEST

START_TEST(other_words_change_nothing)
{
    ck_assert(chooses(NULL, best_here()));
    ck_assert(chooses("", best_here()));
    ck_assert(chooses("avx", best_here()));
    ck_assert(chooses("avx22,,xavx2", best_here()));
}
END_TEST

static Suite *cpu_suite(void)
{
    Suite *suite = suite_create("cpu");
    TCase *tcase = tcase_create("F8K_CPU_DISABLE");
    tcase_add_test(tcase, disabled_features_leave_ref);
    tcase_add_test(tcase, other_words_change_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(cpu_suite());
}
