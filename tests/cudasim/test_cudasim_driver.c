/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated driver, reached as a program without a link to it does: dlopen and dlsym. Contexts,
 * pointer attributes, copies, and virtual memory with its rights; two processes share a block.
 */
#include "child.h"
#include "cudasim.h"
#include "test_kernels.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

enum { MIB = 1 << 20 };

/* ---- looking functions up ---- */

/* All that a program may ask of the double by name. */
static const char *const names[] = {"cuInit", "cuDriverGetVersion", "cuGetErrorName",
    "cuGetErrorString", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2", "cuDeviceGetAttribute", "cuCtxGetCurrent", "cuCtxSetCurrent",
    "cuCtxGetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxGetState", "cuPointerGetAttribute",
    "cuPointerGetAttributes", "cuMemGetAddressRange_v2", "cuMemAlloc_v2", "cuMemFree_v2",
    "cuMemAllocManaged", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyAsync",
    "cuMemcpy2DAsync_v2", "cuMemsetD8Async", "cuStreamCreate", "cuStreamDestroy_v2",
    "cuStreamSynchronize", "cuStreamQuery", "cuStreamWaitEvent", "cuLaunchHostFunc",
    "cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventQuery", "cuEventSynchronize",
    "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuIpcGetEventHandle",
    "cuIpcOpenEventHandle", "cuMemGetAllocationGranularity", "cuMemCreate", "cuMemRelease",
    "cuMemAddressReserve", "cuMemAddressFree", "cuMemMap", "cuMemUnmap", "cuMemSetAccess",
    "cuMemRetainAllocationHandle", "cuMemGetAllocationPropertiesFromHandle",
    "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuGetProcAddress_v2"};

START_TEST(all_functions_are_found_by_name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(driver != NULL, "%s", dlerror());
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_msg(dlsym(driver, names[i]) != NULL, "no %s", names[i]);
    ck_assert_ptr_null(dlsym(driver, "cuNoSuchFunction"));
    dlclose(driver);
}
END_TEST

static void look_up_by_runtime(void *argument)
{
    (void)argument;
    void *function;
    enum cudaDriverEntryPointQueryResult status;
    CHILD_OK(cudaGetDriverEntryPointByVersion("cuMemMap", &function, 12000, 0, &status));
    CHILD_REQUIRE(function == (void *)(uintptr_t)cuMemMap);
    CHILD_REQUIRE(status == cudaDriverEntryPointSuccess);
    CHILD_OK(cudaGetDriverEntryPointByVersion("cuMemFree", &function, 12000, 0, NULL));
    CHILD_REQUIRE(function == (void *)(uintptr_t)cuMemFree); /* _v2 */
    CHILD_REQUIRE(cudaGetDriverEntryPointByVersion("cuNoSuch", &function, 12000, 0, &status) ==
                  cudaErrorSymbolNotFound);
    CHILD_REQUIRE(!function && status == cudaDriverEntryPointSymbolNotFound);
}

/* ---- contexts ---- */

static void use_contexts(void *argument)
{
    (void)argument;
    CUcontext first, second, current;
    CUdevice device;
    CUdeviceptr memory;
    unsigned flags;
    int is_active;
    CHILD_REQUIRE(cuDeviceGet(&device, 0) == CUDA_ERROR_NOT_INITIALIZED);
    CHILD_OK(cuInit(0));
    CHILD_OK(cuCtxGetCurrent(&current));
    CHILD_REQUIRE(!current);
    CHILD_REQUIRE(cuMemAlloc(&memory, 16) == CUDA_ERROR_INVALID_CONTEXT);
    CHILD_OK(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
    CHILD_REQUIRE(!is_active);
    CHILD_OK(cuDevicePrimaryCtxRetain(&first, 0));
    CHILD_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHILD_OK(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
    CHILD_REQUIRE(is_active && first != second);
    CHILD_OK(cuCtxSetCurrent(first));
    CHILD_OK(cuCtxPushCurrent(second));
    CHILD_OK(cuCtxGetDevice(&device));
    CHILD_REQUIRE(device == 1);
    CHILD_OK(cuCtxPopCurrent(&current));
    CHILD_REQUIRE(current == second);
    CHILD_OK(cuCtxGetDevice(&device));
    CHILD_REQUIRE(device == 0);
    CHILD_OK(cuDevicePrimaryCtxRelease(1));
    CHILD_REQUIRE(cuDevicePrimaryCtxRelease(1) == CUDA_ERROR_INVALID_CONTEXT);
}

/* Makes device 0 current. */
static CUstream start(void)
{
    CUcontext context;
    CUstream stream;
    CHILD_OK(cuInit(0));
    CHILD_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHILD_OK(cuCtxSetCurrent(context));
    CHILD_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* ---- pointers ---- */

static uint64_t attribute(CUdeviceptr pointer, CUpointer_attribute name)
{
    uint64_t value = 0;
    CHILD_OK(cuPointerGetAttribute(&value, name, pointer));
    return value;
}

static void ask_of_pointers(void *argument)
{
    (void)argument;
    CUstream stream = start();
    CUdeviceptr memory, managed, pool, base;
    size_t size;
    uint64_t value;
    CHILD_OK(cuMemAlloc(&memory, 1000));
    CHILD_OK(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
    CHILD_OK(cuMemAllocAsync(&pool, 1000, stream));
    CHILD_OK(cuMemGetAddressRange(&base, &size, memory + 10));
    CHILD_REQUIRE(base == memory && size == 1000);
    CHILD_REQUIRE(attribute(memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE);
    CHILD_REQUIRE(attribute(memory, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 1);
    CHILD_REQUIRE(attribute(memory, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) == 0);
    CHILD_REQUIRE(attribute(memory + 10, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == memory);
    CHILD_REQUIRE(attribute(memory, CU_POINTER_ATTRIBUTE_RANGE_SIZE) == 1000);
    CHILD_REQUIRE(attribute(memory, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) == 0);
    CHILD_REQUIRE(attribute(managed, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 1);
    CHILD_REQUIRE(attribute(managed, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 0);
    CHILD_REQUIRE(attribute(pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) != 0);
    CHILD_REQUIRE(attribute(pool, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 0);
    CHILD_REQUIRE(attribute(memory, CU_POINTER_ATTRIBUTE_BUFFER_ID) !=
                  attribute(pool, CU_POINTER_ATTRIBUTE_BUFFER_ID));
    CHILD_REQUIRE(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                      (CUdeviceptr)(uintptr_t)&value) == CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute two[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    unsigned type = 7;
    size = 7;
    void *data[] = {&type, &size};
    CHILD_OK(cuPointerGetAttributes(2, two, data, (CUdeviceptr)(uintptr_t)&value));
    CHILD_REQUIRE(type == 0 && size == 0);
    CHILD_OK(cuPointerGetAttributes(2, two, data, memory));
    CHILD_REQUIRE(type == CU_MEMORYTYPE_DEVICE && size == 1000);
}

static void copy_by_driver(void *argument)
{
    (void)argument;
    CUstream stream = start();
    CUdeviceptr memory;
    CUevent event;
    unsigned char host[64] = {0}, back[64];
    CHILD_OK(cuMemAlloc(&memory, 64));
    CHILD_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    host[5] = 9;
    CHILD_OK(cuMemcpyHtoD(memory, host, 64));
    CHILD_OK(cuMemsetD8Async(memory, 3, 2, stream));
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .srcPitch = 4,
        .srcXInBytes = 1,
        .srcY = 1,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = memory,
        .dstPitch = 8,
        .dstY = 4,
        .WidthInBytes = 1,
        .Height = 2};
    CHILD_OK(cuMemcpy2DAsync(&rows, stream)); /* byte 5 to 32, byte 9 to 40 */
    CHILD_OK(cuEventRecord(event, stream));
    CHILD_OK(cuEventSynchronize(event));
    CHILD_OK(cuMemcpyDtoH(back, memory, 64));
    CHILD_REQUIRE(back[0] == 3 && back[1] == 3 && back[2] == 0 && back[5] == 9 && back[32] == 9);
    CHILD_OK(cuMemFree(memory));
}

START_TEST(contexts_pointers_and_copies)
{
    child_must_pass(look_up_by_runtime, NULL, NULL);
    child_must_pass(use_contexts, NULL, NULL);
    child_must_pass(ask_of_pointers, NULL, NULL);
    child_must_pass(copy_by_driver, NULL, (const char *const[]){"CUDASIM_DELAY_US=2000", NULL});
}
END_TEST

/* ---- virtual memory ---- */

static CUmemGenericAllocationHandle create(size_t size)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CHILD_OK(cuMemCreate(&handle, size, &properties, 0));
    return handle;
}

static void allow(CUdeviceptr address, size_t size, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = flags};
    CHILD_OK(cuMemSetAccess(address, size, &access, 1));
}

static CUdeviceptr map_at_new(
    CUmemGenericAllocationHandle handle, size_t size, CUmemAccess_flags flags)
{
    CUdeviceptr address;
    CHILD_OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHILD_OK(cuMemMap(address, size, 0, handle, 0));
    if (flags)
        allow(address, size, flags);
    return address;
}

static void fill(CUdeviceptr address, uint32_t value, CUstream stream)
{
    CHILD_OK(kernel_fill((uint32_t *)address, 1024, value, stream));
    CHILD_OK(cuStreamSynchronize(stream));
}

static uint32_t word_at(CUdeviceptr address)
{
    uint32_t value;
    CHILD_OK(cuMemcpyDtoH(&value, address, sizeof value));
    return value;
}

/* Two blocks side by side, as expandable segments have them; and what is refused. */
static void map_segments(void *argument)
{
    (void)argument;
    CUstream stream = start();
    CUdeviceptr address, base;
    size_t size;
    CUmemGenericAllocationHandle block[2] = {create(2 * MIB), create(4 * MIB)}, again;
    CUmemAllocationProp properties;
    CHILD_OK(cuMemAddressReserve(&address, 8 * MIB, 0, 0, 0));
    CHILD_OK(cuMemMap(address, 2 * MIB, 0, block[0], 0));
    CHILD_REQUIRE(cuMemMap(address, 4 * MIB, 0, block[1], 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_REQUIRE(cuMemMap(address + 6 * MIB, 4 * MIB, 0, block[1], 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_OK(cuMemMap(address + 2 * MIB, 4 * MIB, 0, block[1], 0));
    allow(address, 6 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_OK(kernel_fill((uint32_t *)address, 6 * MIB / 4, 7, stream));
    CHILD_OK(cuMemsetD8Async(address + 2 * MIB - 4, 1, 8, stream)); /* over the seam */
    CHILD_OK(cuStreamSynchronize(stream));
    CHILD_REQUIRE(word_at(address + 6 * MIB - 4) == 7 && word_at(address + 2 * MIB) == 0x01010101);
    CHILD_OK(cuMemGetAddressRange(&base, &size, address + 3 * MIB));
    CHILD_REQUIRE(base == address + 2 * MIB && size == 4 * MIB);
    CHILD_REQUIRE(attribute(address, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) ==
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHILD_OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 3 * MIB)));
    CHILD_REQUIRE(again == block[1]);
    CHILD_OK(cuMemGetAllocationPropertiesFromHandle(&properties, again));
    CHILD_REQUIRE(properties.location.id == 0);
    CHILD_OK(cuMemRelease(again));
    CHILD_OK(cuMemRelease(block[0]));
    CHILD_OK(cuMemRelease(block[1])); /* the mappings hold the memory */
    CHILD_REQUIRE(cuMemRelease(block[1]) == CUDA_ERROR_INVALID_VALUE);
    CHILD_REQUIRE(word_at(address) == 7);
    CHILD_REQUIRE(cuMemAddressFree(address, 8 * MIB) == CUDA_ERROR_INVALID_VALUE);
    CHILD_REQUIRE(cuMemUnmap(address, 4 * MIB) == CUDA_ERROR_INVALID_VALUE);
    CHILD_OK(cuMemUnmap(address, 6 * MIB));
    CHILD_OK(cuMemAddressFree(address, 8 * MIB));
    CHILD_REQUIRE(cudasim_counted(CUDASIM_MAPS) == 2 && cudasim_counted(CUDASIM_UNMAPS) == 2);
}

static void map_elsewhere(void *argument)
{
    (void)argument;
    CUstream stream = start();
    CUmemGenericAllocationHandle handle = create(2 * MIB);
    CUdeviceptr one = map_at_new(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr two = map_at_new(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
    fill(one, 5, stream);
    CHILD_REQUIRE(word_at(two) == 5);
    CHILD_OK(cuMemUnmap(one, 2 * MIB));
    CHILD_OK(cuMemMap(one, 2 * MIB, 0, handle, 0)); /* addresses that were used before */
    allow(one, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill(one, 6, stream);
    CHILD_REQUIRE(word_at(two) == 6);
}

START_TEST(blocks_are_mapped)
{
    child_must_pass(map_segments, NULL, NULL);
    child_must_pass(map_elsewhere, NULL, NULL);
}
END_TEST

/* ---- rights ---- */

static void write_with(void *argument)
{
    CUstream stream = start();
    const CUmemAccess_flags *flags = argument;
    fill(map_at_new(create(2 * MIB), 2 * MIB, *flags), 1, stream);
}

static void write_unmapped(void *argument)
{
    (void)argument;
    CUstream stream = start();
    CUdeviceptr address = map_at_new(create(2 * MIB), 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_OK(cuMemUnmap(address, 2 * MIB));
    fill(address, 1, stream);
}

static void write_from_other_device(void *argument)
{
    (void)argument;
    start();
    CUdeviceptr address = map_at_new(create(2 * MIB), 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUcontext context;
    CUstream stream;
    CHILD_OK(cuDevicePrimaryCtxRetain(&context, 1));
    CHILD_OK(cuCtxSetCurrent(context));
    CHILD_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fill(address, 1, stream);
}

/* Its first access only reads, so the pages are open when it writes. */
static void write_after_reading(void *argument)
{
    (void)argument;
    CUstream stream = start();
    CUdeviceptr address = map_at_new(create(2 * MIB), 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHILD_OK(kernel_add_one((uint32_t *)address, (uint32_t *)address, 4, stream));
    CHILD_OK(cuStreamSynchronize(stream));
}

static void map_during_collective(void *argument)
{
    const bool *unmaps = argument;
    start();
    CUmemGenericAllocationHandle handle = create(2 * MIB);
    CUdeviceptr address = map_at_new(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cudasim_collective_begin(0);
    if (*unmaps)
        cuMemUnmap(address, 2 * MIB);
    map_at_new(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

START_TEST(rights_are_held)
{
    child_must_pass(write_with, &(CUmemAccess_flags){CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, NULL);
    child_must_fault(write_with, &(CUmemAccess_flags){CU_MEM_ACCESS_FLAGS_PROT_READ}, NULL,
        "without the right to");
    child_must_fault(write_with, &(CUmemAccess_flags){CU_MEM_ACCESS_FLAGS_PROT_NONE}, NULL,
        "without the right to");
    child_must_fault(write_after_reading, NULL, NULL, "without the right to");
    child_must_fault(write_from_other_device, NULL, NULL, "without the right to");
    child_must_fault(write_unmapped, NULL, NULL, "ended by cuMemUnmap");
    child_must_fault(map_during_collective, &(bool){false}, NULL, "cuMemMap while 1 collective");
    child_must_fault(map_during_collective, &(bool){true}, NULL, "cuMemUnmap while 1 collective");
}
END_TEST

/* ---- sharing ---- */

static void export_and_die(int socket)
{
    CUstream stream = start();
    int fd;
    CUmemGenericAllocationHandle handle = create(2 * MIB);
    fill(map_at_new(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 42, stream);
    CHILD_OK(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    child_send_fd(socket, fd);
    child_linger(socket);
}

static void import_from_the_dead(void *argument)
{
    (void)argument;
    int socket, device = -1;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    pid_t peer = child_peer(export_and_die, &socket);
    start();
    int fd = child_receive_fd(socket);
    kill(peer, SIGKILL);
    child_join(peer, 128 + SIGKILL);
    CHILD_OK(cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CUdeviceptr address = map_at_new(handle, 2 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHILD_OK(cuMemRelease(handle));
    CHILD_REQUIRE(word_at(address) == 42);
    CHILD_OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    CHILD_REQUIRE(device == 0);
    CHILD_OK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address));
    CHILD_OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
}

static void import_nonsense(void *argument)
{
    (void)argument;
    start();
    CUmemGenericAllocationHandle handle;
    int fd = open("/dev/null", O_RDONLY);
    CHILD_REQUIRE(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_ERROR_INVALID_VALUE);
    CHILD_REQUIRE(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)999,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_ERROR_INVALID_VALUE);
}

START_TEST(a_block_outlives_its_exporter)
{
    child_must_pass(import_from_the_dead, NULL, NULL);
    child_must_pass(import_nonsense, NULL, NULL);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("driver");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, all_functions_are_found_by_name);
    tcase_add_test(tcase, contexts_pointers_and_copies);
    tcase_add_test(tcase, blocks_are_mapped);
    tcase_add_test(tcase, rights_are_held);
    tcase_add_test(tcase, a_block_outlives_its_exporter);
    return run_suite("cudasim_driver", tcase);
}
