/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of names, against a plain table of who should be in it: duplicates, growth, and removals
 * in every order, which must not hide other names.
 */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/names.h"
#include "status.h"
#include "tests/lib/suite.h"

#define MANY 3000

static const char *name_of(unsigned i)
{
    static char text[32];
    (void)snprintf(text, sizeof(text), "layers.%u.weight", i);
    return text;
}

static void add(struct names *names, unsigned i)
{
    const char *copy = NULL;
    ck_assert_int_eq(names_add(names, name_of(i), &copy), F8_OK);
    ck_assert_str_eq(copy, name_of(i));
}

/* Whether the name is there; the set is as before afterwards. */
static bool contains(struct names *names, unsigned i)
{
    const char *copy = NULL;
    if (names_add(names, name_of(i), &copy) == F8_EEXIST)
        return true;
    names_remove(names, name_of(i));
    return false;
}

START_TEST(names_are_copies_and_unique)
{
    struct names names = {0};
    char text[] = "w";
    const char *copy = NULL, *again = "untouched";
    ck_assert_int_eq(names_add(&names, text, &copy), F8_OK);
    ck_assert_ptr_ne(copy, text);
    text[0] = 'x';
    ck_assert_str_eq(copy, "w");
    ck_assert_int_eq(names_add(&names, "w", &again), F8_EEXIST);
    ck_assert_str_eq(again, "untouched");
    ck_assert_uint_eq(names.count, 1);
    names_remove(&names, copy); /* the set's own string may be given */
    ck_assert_uint_eq(names.count, 0);
    ck_assert_int_eq(names_add(&names, "w", &again), F8_OK);
    names_done(&names);
    ck_assert_int_eq(names_add(&names, "w", &again), F8_OK);
    names_done(&names);
}
END_TEST

START_TEST(names_stay_where_they_are_while_the_set_grows)
{
    struct names names = {0};
    static const char *copies[MANY];
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(names_add(&names, name_of(i), &copies[i]), F8_OK);
    ck_assert_uint_eq(names.count, MANY);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_str_eq(copies[i], name_of(i));
    names_done(&names);
}
END_TEST

/* Puts in and takes out by a fixed walk; a small range of names keeps the table crowded. */
START_TEST(removal_hides_no_other_name)
{
    struct names names = {0};
    bool there[31] = {false};
    unsigned state = 1;
    for (int step = 0; step < 4000; step++) {
        state = state * 1103515245u + 12345u;
        unsigned i = (state >> 16) % 31;
        if (there[i])
            names_remove(&names, name_of(i));
        else
            add(&names, i);
        there[i] = !there[i];
        for (unsigned k = 0; k < 31; k++)
            ck_assert_int_eq(contains(&names, k), there[k]);
    }
    names_done(&names);
}
END_TEST

/*
 * Names that a table with FNV-1a hashes, as this set once was, puts into one slot: each would be
 * compared with all others, on the loop of all clients. Ends in time only if none need be.
 */
START_TEST(names_chosen_to_collide_cost_no_more)
{
    struct names names = {0};
    char name[7] = "";
    const char *copy;
    for (unsigned prefix = 0; names.count < 30000; prefix++) {
        uint32_t hash = 2166136261U;
        for (int i = 0; i < 5; i++) {
            name[i] = (char)('0' + (prefix >> 6 * i) % 64);
            hash = (hash ^ (unsigned char)name[i]) * 16777619U;
        }
        uint32_t last = hash & 0xffff; /* with this byte at the end the low 16 bits are 0 */
        if (last < ' ' || last > '~')
            continue;
        name[5] = (char)last;
        ck_assert_int_eq(names_add(&names, name, &copy), F8_OK);
    }
    names_done(&names);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("names");
    tcase_add_test(tcase, names_are_copies_and_unique);
    tcase_add_test(tcase, names_stay_where_they_are_while_the_set_grows);
    tcase_add_test(tcase, removal_hides_no_other_name);
    tcase_add_test(tcase, names_chosen_to_collide_cost_no_more);
    return run_suite("names", tcase);
}
