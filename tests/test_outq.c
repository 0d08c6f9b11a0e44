/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of waiting packets: order, growth and moving to the front, and that descriptors are
 * duplicated and closed, each once.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/outq.h"
#include "status.h"
#include "tests/lib/suite.h"

#define LARGEST 9000

static uint8_t bytes[LARGEST];

/* Packet n has a size and a content of its own. */
static size_t size_of(unsigned n)
{
    return n % 7 == 0 ? 0 : n * 37 % LARGEST;
}

static void push(struct outq *queue, unsigned n)
{
    memset(bytes, (int)n, size_of(n));
    ck_assert_int_eq(outq_push(queue, bytes, size_of(n), -1), F8_OK);
}

static void pop(struct outq *queue, unsigned n)
{
    struct outq_packet packet = outq_first(queue);
    ck_assert_uint_eq(packet.size, size_of(n));
    ck_assert_int_eq(packet.fd, -1);
    memset(bytes, (int)n, packet.size);
    ck_assert_int_eq(memcmp(packet.data, bytes, packet.size), 0);
    outq_pop(queue);
}

START_TEST(packets_come_out_in_order)
{
    struct outq queue = {0};
    unsigned in = 0, out = 0;
    /* Rising and falling, so that the buffer grows, moves its records and runs empty. */
    for (unsigned wave = 1; wave < 40; wave++) {
        for (unsigned i = 0; i < wave * 3 % 50; i++)
            push(&queue, in++);
        while (out < in && (in - out) * 2 > wave % 30) {
            pop(&queue, out++);
            ck_assert_uint_eq(queue.count, in - out);
        }
    }
    while (out < in)
        pop(&queue, out++);
    ck_assert_uint_eq(outq_bytes(&queue), 0);
    outq_done(&queue);
}
END_TEST

/* A connection at rest does not allocate: the buffer of the largest wave stays. */
START_TEST(steady_queue_keeps_its_buffer)
{
    struct outq queue = {0};
    for (unsigned i = 0; i < 20; i++)
        push(&queue, i);
    const uint8_t *data = queue.data;
    size_t capacity = queue.capacity;
    for (unsigned i = 0; i < 2000; i++) {
        outq_pop(&queue);
        push(&queue, i % 20);
        ck_assert_uint_eq(queue.count, 20);
    }
    ck_assert_uint_eq(queue.capacity, capacity);
    ck_assert_ptr_eq(queue.data, data);
    outq_done(&queue);
    ck_assert_ptr_null(queue.data);
}
END_TEST

START_TEST(waiting_bytes_are_told)
{
    struct outq queue = {0};
    ck_assert_uint_eq(outq_bytes(&queue), 0);
    ck_assert_int_eq(outq_push(&queue, bytes, 100, -1), F8_OK);
    size_t one = outq_bytes(&queue);
    ck_assert_uint_ge(one, 100);
    ck_assert_int_eq(outq_push(&queue, bytes, 100, -1), F8_OK);
    ck_assert_uint_eq(outq_bytes(&queue), 2 * one);
    outq_pop(&queue);
    ck_assert_uint_eq(outq_bytes(&queue), one);
    outq_done(&queue);
}
END_TEST

static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count;
}

static bool same_file(int a, int b)
{
    struct stat of_a, of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

START_TEST(descriptors_are_duplicated_and_closed)
{
    struct outq queue = {0};
    int before = open_descriptors(), ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(outq_push(&queue, "a", 1, ends[0]), F8_OK);
    ck_assert_int_eq(outq_push(&queue, "b", 1, -1), F8_OK);
    ck_assert_int_eq(outq_push(&queue, "c", 1, ends[1]), F8_OK);
    int queued = outq_first(&queue).fd;
    ck_assert_int_ne(queued, ends[0]);
    ck_assert(same_file(queued, ends[0]));
    ck_assert(fcntl(queued, F_GETFD) & FD_CLOEXEC);
    ck_assert_int_eq(open_descriptors(), before + 4);
    outq_pop(&queue);
    ck_assert_int_eq(open_descriptors(), before + 3);
    ck_assert_int_eq(outq_first(&queue).fd, -1);
    outq_done(&queue);
    ck_assert_int_eq(open_descriptors(), before + 2);
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

START_TEST(refused_packet_leaves_the_queue_as_it_was)
{
    struct outq queue = {0};
    ck_assert_int_eq(outq_push(&queue, "a", 1, -1), F8_OK);
    size_t waiting = outq_bytes(&queue);
    int closed = dup(STDIN_FILENO);
    (void)close(closed);
    ck_assert_int_eq(outq_push(&queue, "b", 1, closed), F8_EIO);
    ck_assert_uint_eq(queue.count, 1);
    ck_assert_uint_eq(outq_bytes(&queue), waiting);
    ck_assert_int_eq(outq_push(&queue, "c", 1, -1), F8_OK);
    outq_pop(&queue);
    ck_assert_uint_eq(*outq_first(&queue).data, 'c');
    outq_done(&queue);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("outq");
    tcase_add_test(tcase, packets_come_out_in_order);
    tcase_add_test(tcase, steady_queue_keeps_its_buffer);
    tcase_add_test(tcase, waiting_bytes_are_told);
    tcase_add_test(tcase, descriptors_are_duplicated_and_closed);
    tcase_add_test(tcase, refused_packet_leaves_the_queue_as_it_was);
    return run_suite("outq", tcase);
}
