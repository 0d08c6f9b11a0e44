/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test's side of the fake daemon on a device: starts it as a program of its own, with a
 * listening socket and the shared memory as descriptors.
 */
#include "tests/cuda/fake_gpu.h"

#include <check.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/fake_gpu_daemon.h"

extern char **environ;

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

static void launch(struct fake_gpu *gpu)
{
    posix_spawn_file_actions_t actions;
    char *arguments[] = {(char *)"fake_gpu", (char *)FAKE_GPU_ARGUMENT, NULL};
    int listener = listen_at(gpu->socket);
    int memory = memfd_create("fake_gpu", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(memory, sizeof(*gpu->shared)), 0);
    gpu->shared = mmap(NULL, sizeof(*gpu->shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    ck_assert_ptr_ne(gpu->shared, MAP_FAILED);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, listener, FAKE_GPU_LISTENER);
    posix_spawn_file_actions_adddup2(&actions, memory, FAKE_GPU_MEMORY);
    ck_assert_int_eq(
        posix_spawn(&gpu->pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(listener);
    close(memory);
}

void fake_gpu_start(struct fake_gpu *gpu)
{
    memset(gpu, 0, sizeof(*gpu));
    strcpy(gpu->directory, "/tmp/f8-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(gpu->directory));
    snprintf(gpu->socket, sizeof(gpu->socket), "%s/socket", gpu->directory);
    launch(gpu);
}

static int reap(struct fake_gpu *gpu)
{
    int status = 0;
    ck_assert_int_eq(waitpid(gpu->pid, &status, 0), gpu->pid);
    munmap(gpu->shared, sizeof(*gpu->shared));
    unlink(gpu->socket);
    return status;
}

static int end(struct fake_gpu *gpu)
{
    int status = reap(gpu);
    rmdir(gpu->directory);
    return status;
}

void fake_gpu_stop(struct fake_gpu *gpu)
{
    int status = end(gpu);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "the fake daemon ended with status 0x%x", (unsigned)status);
}

void fake_gpu_kill(struct fake_gpu *gpu)
{
    kill(gpu->pid, SIGKILL);
    int status = end(gpu);
    ck_assert(WIFSIGNALED(status));
}

void fake_gpu_replace(struct fake_gpu *gpu)
{
    kill(gpu->pid, SIGKILL);
    (void)reap(gpu);
    launch(gpu);
}

const struct fake_gpu_request *fake_gpu_request(
    const struct fake_gpu *gpu, uint32_t body, uint32_t index)
{
    for (uint32_t i = 0; i < gpu->shared->num_requests; i++)
        if (gpu->shared->requests[i].body == body && index-- == 0)
            return &gpu->shared->requests[i];
    ck_abort_msg("too few requests of kind %u came", body);
    return NULL;
}

void fake_gpu_main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], FAKE_GPU_ARGUMENT) == 0)
        exit(fake_gpu_daemon());
}
