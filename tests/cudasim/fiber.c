/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: stacks that one CPU thread goes back and forth between, without the kernel. The address
 * and thread sanitizers are told of each change of stack. grid.c is the only caller; a fiber is run
 * by one thread at a time, from its start to its end.
 */
#include "core.h"

#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif

#ifdef HAS_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HAS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(HAS_ASAN) || defined(HAS_TSAN)
#define STACK_SIZE ((size_t)256 << 10)
#else
#define STACK_SIZE ((size_t)64 << 10)
#endif

/* The thread sanitizer counts calls by stack: where the stack changes, calls must not be counted.
 */
#define UNTRACED __attribute__((no_sanitize("thread")))

/* A place to go back to. */
#if defined(__x86_64__)
struct context {
    void *stack_pointer;
};
#else
#include <ucontext.h>
struct context {
    ucontext_t state;
};
#endif

struct fiber {
    struct context context;
    char *stack; /* owned */
    void (*entry)(void *argument);
    void *argument;
    void *fake_stack; /* the address sanitizer's */
    void *thread;     /* the thread sanitizer's */
};

/* Of this CPU thread. */
static __thread struct context scheduler;
static __thread struct fiber *current;
#ifdef HAS_ASAN
static __thread void *scheduler_fake_stack;
static __thread const void *scheduler_stack;
static __thread size_t scheduler_stack_size;
#endif
#ifdef HAS_TSAN
static __thread void *scheduler_thread;
#endif

/* ---- what the sanitizers want to know ---- */

UNTRACED static void before_run(struct fiber *fiber)
{
    (void)fiber;
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber->stack, STACK_SIZE);
#endif
#ifdef HAS_TSAN
    scheduler_thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->thread, 0);
#endif
}

UNTRACED static void after_run(void)
{
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, NULL, NULL);
#endif
}

/* With an end the fiber's own fake stack goes. */
UNTRACED static void before_yield(struct fiber *fiber, bool is_end)
{
    (void)fiber;
    (void)is_end;
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(
        is_end ? NULL : &fiber->fake_stack, scheduler_stack, scheduler_stack_size);
#endif
#ifdef HAS_TSAN
    __tsan_switch_to_fiber(scheduler_thread, 0);
#endif
}

UNTRACED static void after_yield(struct fiber *fiber)
{
    (void)fiber;
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &scheduler_stack, &scheduler_stack_size);
#endif
}

/* ---- changing stacks ---- */

static void fiber_main(void);

#if defined(__x86_64__)

/* Saves what a call must keep, on the old stack, and takes it from the new one. */
void cudasim_switch(struct context *from, const struct context *to);
__asm__(".text\n"
        ".globl cudasim_switch\n"
        ".hidden cudasim_switch\n"
        ".type cudasim_switch, @function\n"
        "cudasim_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size cudasim_switch, .-cudasim_switch\n");

UNTRACED static void context_switch(struct context *from, const struct context *to)
{
    cudasim_switch(from, to);
}

/* Six registers, and where to return to, under an address that nothing returns to. */
static void context_start(struct context *context, char *stack)
{
    void **top = (void **)(stack + STACK_SIZE) - 1; /* aligned as by a call */
    *top = NULL;
    *--top = (void *)(uintptr_t)fiber_main;
    context->stack_pointer = top - 6;
}

#else

UNTRACED static void context_switch(struct context *from, const struct context *to)
{
    swapcontext(&from->state, &to->state);
}

static void context_start(struct context *context, char *stack)
{
    getcontext(&context->state);
    context->state.uc_stack.ss_sp = stack;
    context->state.uc_stack.ss_size = STACK_SIZE;
    context->state.uc_link = NULL;
    makecontext(&context->state, fiber_main, 0);
}

#endif

UNTRACED static void fiber_main(void)
{
    struct fiber *fiber = current;
    fiber->fake_stack = NULL;
    after_yield(fiber);
    fiber->entry(fiber->argument);
    before_yield(fiber, true);
    context_switch(&fiber->context, &scheduler);
    abort(); /* an ended fiber is only run after fiber_prepare */
}

struct fiber *fiber_new(void)
{
    struct fiber *fiber = calloc(1, sizeof *fiber);
    char *stack = mmap(NULL, STACK_SIZE + 4096, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!fiber || stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE))
        cudasim_fault("no memory for the stack of a GPU thread");
    fiber->stack = stack + 4096;
#ifdef HAS_TSAN
    fiber->thread = __tsan_create_fiber(0);
#endif
    return fiber;
}

void fiber_prepare(struct fiber *fiber, void (*entry)(void *argument), void *argument)
{
    fiber->entry = entry;
    fiber->argument = argument;
    context_start(&fiber->context, fiber->stack);
}

UNTRACED void fiber_run(struct fiber *fiber)
{
    current = fiber;
    before_run(fiber);
    context_switch(&scheduler, &fiber->context);
    after_run();
    current = NULL;
}

UNTRACED void fiber_yield(void)
{
    struct fiber *fiber = current;
    before_yield(fiber, false);
    context_switch(&fiber->context, &scheduler);
    after_yield(fiber);
}
