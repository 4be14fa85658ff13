/* libcuda.so.1 of the driver in software: contexts, memory and copies. See soft_driver.h.
 *
 * Contexts follow NVIDIA's rules: each thread has a stack of them, the primary one is retained, and what needs a current
 * context fails without one. All calls are there that FFmpeg's loader looks for; those that nothing here needs say that
 * they are not supported. */
#include "soft_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Contexts. */

enum { MAX_DEVICES = 2 };
typedef struct { int primary, retained, device; unsigned flags; } Context;
typedef struct { Context *stack[64]; int depth; } Thread;
static Context primaries[MAX_DEVICES] = {{.primary = 1}, {.primary = 1, .device = 1}};
static int num_devices = 1;
static _Thread_local Thread thread;
static pid_t started;

static Context *current(void) { return thread.depth ? thread.stack[thread.depth - 1] : NULL; }

int soft_context(const char *call) {
    if (started != getpid()) return NOT_INITIALIZED;
    if (current()) return SUCCESS;
    soft_complain("%s without a current context", call);
    return INVALID_CONTEXT;
}

/* How many GPUs there are, at most two. */
void soft_devices(int count) { num_devices = count; }
static int no_device(int device) { return device < 0 || device >= num_devices; }
int soft_device(void) { return current() ? current()->device : -1; }

#define CALLED(name) do { int error = soft_called(name); if (error) return error; } while (0)
#define CLOSING(name) do { CALLED(name); int error = soft_context(name); if (error) return error; } while (0)
#define IN_CONTEXT(name) do { CLOSING(name); if (soft_broken()) return soft_broken(); } while (0)

int cuInit(unsigned flags) {
    CALLED("cuInit");
    /* A process that was forked from one that uses CUDA cannot use it. */
    if (started && started != getpid()) return NOT_INITIALIZED;
    started = getpid();
    return flags ? INVALID_VALUE : SUCCESS;
}

int cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = num_devices; return started == getpid() ? SUCCESS : NOT_INITIALIZED; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return no_device(ordinal) ? INVALID_DEVICE : SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "a driver in software");
    return no_device(device) ? INVALID_DEVICE : SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    /* The alignments of textures and of their pitch; the compute capability. */
    *value = attribute == 14 ? 512 : attribute == 51 ? 32 : attribute == 75 ? 9 : attribute == 16 ? 132 : 0;
    return no_device(device) ? INVALID_DEVICE : SUCCESS;
}
int cuDeviceComputeCapability(int *major, int *minor, int device) { *major = 9; *minor = 0; return no_device(device) ? 101 : 0; }

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    if (no_device(device)) return INVALID_DEVICE;
    *flags = primaries[device].flags;
    *active = primaries[device].retained > 0;
    return SUCCESS;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    if (no_device(device)) return INVALID_DEVICE;
    if (primaries[device].retained && flags != primaries[device].flags) return PRIMARY_CONTEXT_ACTIVE;
    primaries[device].flags = flags;
    return SUCCESS;
}
int cuDevicePrimaryCtxSetFlags(int device, unsigned flags) { return cuDevicePrimaryCtxSetFlags_v2(device, flags); }
int cuDevicePrimaryCtxRetain(Context **context, int device) {
    CALLED("cuDevicePrimaryCtxRetain");
    if (started != getpid()) return NOT_INITIALIZED;
    if (no_device(device)) return INVALID_DEVICE;
    __atomic_add_fetch(&primaries[device].retained, 1, __ATOMIC_SEQ_CST);
    *context = &primaries[device];
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    CALLED("cuDevicePrimaryCtxRelease");
    if (no_device(device) || !primaries[device].retained) return INVALID_CONTEXT;
    __atomic_sub_fetch(&primaries[device].retained, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }

int cuCtxPushCurrent_v2(Context *context) {
    CALLED("cuCtxPushCurrent");
    if (started != getpid()) return NOT_INITIALIZED;
    if (!context || (context->primary && !context->retained)) return INVALID_CONTEXT;
    if (thread.depth == 64) return INVALID_VALUE;
    thread.stack[thread.depth++] = context;
    return SUCCESS;
}
int cuCtxPopCurrent_v2(Context **context) {
    CALLED("cuCtxPopCurrent");
    if (!thread.depth) {
        soft_complain("cuCtxPopCurrent from an empty stack");
        return INVALID_CONTEXT;
    }
    if (context) *context = current();
    thread.depth--;
    return SUCCESS;
}
int cuCtxSetCurrent(Context *context) {
    CALLED("cuCtxSetCurrent");
    if (started != getpid()) return NOT_INITIALIZED;
    if (thread.depth) thread.depth--;
    if (context) thread.stack[thread.depth++] = context;
    return SUCCESS;
}
int cuCtxGetCurrent(Context **context) {
    CALLED("cuCtxGetCurrent");
    if (started != getpid()) return NOT_INITIALIZED;
    *context = current();
    return SUCCESS;
}
int cuCtxGetDevice(int *device) { *device = soft_device(); return soft_context("cuCtxGetDevice"); }
int cuCtxCreate_v2(Context **context, unsigned flags, int device) {
    CALLED("cuCtxCreate");
    if (started != getpid()) return NOT_INITIALIZED;
    if (no_device(device)) return INVALID_DEVICE;
    *context = calloc(1, sizeof **context);
    (*context)->flags = flags;
    (*context)->device = device;
    return cuCtxPushCurrent_v2(*context);
}
int cuCtxDestroy_v2(Context *context) {
    CALLED("cuCtxDestroy");
    if (!context || context->primary) return INVALID_CONTEXT;
    if (current() == context) thread.depth--;
    free(context);
    return SUCCESS;
}
int cuCtxSynchronize(void) { return soft_context("cuCtxSynchronize"); }

/* How deep the calling thread's stack of contexts is. */
int soft_depth(void) { return thread.depth; }

/* Memory and copies. */

int cuMemAlloc_v2(void **memory, size_t size) {
    IN_CONTEXT("cuMemAlloc");
    if (!size) return INVALID_VALUE;
    *memory = soft_allocate(size);
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *free_bytes = *total = (size_t)1 << 40;
    /* It does nothing, so that it may be asked whether there is a context. */
    return current() ? soft_broken() : INVALID_CONTEXT;
}
int cuMemAllocPitch_v2(void **memory, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(memory, *pitch * height);
}
int cuMemFree_v2(void *memory) {
    CLOSING("cuMemFree");
    if (soft_release(memory)) return SUCCESS;
    soft_complain("cuMemFree of what is not allocated");
    return INVALID_VALUE;
}

typedef struct {
    size_t x, y; int type; const void *host; unsigned char *device; void *array; size_t pitch;
} Side;
typedef struct { Side from, to; size_t width, height; } Copy;
enum { HOST = 1, DEVICE = 2 };

static unsigned char *start_of(const Side *side, size_t width, size_t height, const char *which) {
    const unsigned char *start = side->type == HOST ? side->host : side->device;
    start += side->y * side->pitch + side->x;
    size_t bytes = height ? (height - 1) * side->pitch + width : 0;
    if (side->type == DEVICE && !soft_allocated(start, bytes))
        soft_complain("a copy's %s is no memory of the device: %zu lines of %zu bytes", which, height, width);
    return (unsigned char *)start;
}

int cuMemcpy2DAsync_v2(const Copy *copy, void *stream) {
    (void)stream;
    IN_CONTEXT("cuMemcpy2DAsync");
    if (copy->width > copy->from.pitch || copy->width > copy->to.pitch) return INVALID_VALUE;
    const unsigned char *from = start_of(&copy->from, copy->width, copy->height, "source");
    unsigned char *to = start_of(&copy->to, copy->width, copy->height, "target");
    for (size_t line = 0; line < copy->height; line++)
        memcpy(to + line * copy->to.pitch, from + line * copy->from.pitch, copy->width);
    return SUCCESS;
}
int cuMemcpy2D_v2(const Copy *copy) { return cuMemcpy2DAsync_v2(copy, NULL); }
int cuMemcpyAsync(void *to, const void *from, size_t size, void *stream) {
    (void)stream;
    IN_CONTEXT("cuMemcpy");
    memcpy(to, from, size);
    return SUCCESS;
}
int cuMemcpy(void *to, const void *from, size_t size) { return cuMemcpyAsync(to, from, size, NULL); }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { return cuMemcpyAsync(to, from, size, NULL); }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { return cuMemcpyAsync(to, from, size, NULL); }
int cuMemcpyDtoD_v2(void *to, const void *from, size_t size) { return cuMemcpyAsync(to, from, size, NULL); }
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *s) { return cuMemcpyAsync(to, from, size, s); }
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t size, void *s) { return cuMemcpyAsync(to, from, size, s); }
int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t size, void *s) { return cuMemcpyAsync(to, from, size, s); }
int cuMemsetD8Async(unsigned char *to, unsigned char value, size_t size, void *stream) {
    (void)stream;
    IN_CONTEXT("cuMemsetD8");
    memset(to, value, size);
    return SUCCESS;
}

int cuMemAllocAsync(void **memory, size_t size, void *stream) { (void)stream; return cuMemAlloc_v2(memory, size); }
int cuMemFreeAsync(void *memory, void *stream) { (void)stream; return cuMemFree_v2(memory); }
int cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
    (void)flags;
    *memory = malloc(size);
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *memory) { free(memory); return SUCCESS; }

/* Streams and events: all work has run when it is waited for. */

int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return SUCCESS; }
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    (void)stream;
    function(data);
    return SUCCESS;
}

int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    *stream = stream;
    return soft_context("cuStreamCreate");
}
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(stream, flags);
}
int cuStreamQuery(void *stream) { (void)stream; return soft_context("cuStreamQuery"); }
int cuStreamSynchronize(void *stream) {
    (void)stream;
    IN_CONTEXT("cuStreamSynchronize");
    return SUCCESS;
}
int cuStreamDestroy_v2(void *stream) { (void)stream; return soft_context("cuStreamDestroy"); }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { (void)stream, (void)event, (void)flags; return 0; }
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = event; return soft_context("cuEventCreate"); }
int cuEventDestroy_v2(void *event) { (void)event; return SUCCESS; }
int cuEventSynchronize(void *event) { (void)event; return SUCCESS; }
int cuEventQuery(void *event) { (void)event; return SUCCESS; }
int cuEventRecord(void *event, void *stream) { (void)event, (void)stream; return SUCCESS; }

int cuGetErrorName(int error, const char **name) {
    static const struct { int error; const char *name; } names[] = {
        {SUCCESS, "CUDA_SUCCESS"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"}, {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {100, "CUDA_ERROR_NO_DEVICE"}, {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"}, {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {214, "CUDA_ERROR_ECC_UNCORRECTABLE"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {999, "CUDA_ERROR_UNKNOWN"},
        {PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"}, {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
    };
    *name = NULL;
    for (size_t each = 0; each < sizeof names / sizeof *names; each++)
        if (names[each].error == error) *name = names[each].name;
    return *name ? SUCCESS : INVALID_VALUE;
}
int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }

#define NOT_HERE(name) int name(void) { int error = soft_called(#name); return error ? error : NOT_SUPPORTED; }
NOT_HERE(cuCtxSetLimit) NOT_HERE(cuMemAllocManaged) NOT_HERE(cuDevicePrimaryCtxReset) NOT_HERE(cuStreamAddCallback)
NOT_HERE(cuLinkCreate) NOT_HERE(cuLinkAddData) NOT_HERE(cuLinkComplete) NOT_HERE(cuLinkDestroy)
NOT_HERE(cuModuleGetGlobal) NOT_HERE(cuArrayCreate_v2) NOT_HERE(cuArray3DCreate_v2) NOT_HERE(cuArrayDestroy)
NOT_HERE(cuArray3DGetDescriptor_v2) NOT_HERE(cuArrayGetPlane) NOT_HERE(cuMemsetD16Async) NOT_HERE(cuMemsetD32Async)
NOT_HERE(cuMemsetD2D8Async) NOT_HERE(cuMemsetD2D16Async) NOT_HERE(cuMemsetD2D32Async)
NOT_HERE(cuGLGetDevices_v2) NOT_HERE(cuGraphicsGLRegisterImage) NOT_HERE(cuGraphicsUnregisterResource)
NOT_HERE(cuGraphicsMapResources) NOT_HERE(cuGraphicsUnmapResources) NOT_HERE(cuGraphicsSubResourceGetMappedArray)
NOT_HERE(cuGraphicsResourceGetMappedPointer_v2)
/* Kernels: libcuda has them where soft_scale.c is part of it. */
#pragma weak cuLaunchKernel
#pragma weak cuModuleLoadData
#pragma weak cuModuleUnload
#pragma weak cuModuleGetFunction
#pragma weak cuTexObjectCreate
#pragma weak cuTexObjectDestroy
NOT_HERE(cuLaunchKernel) NOT_HERE(cuModuleLoadData) NOT_HERE(cuModuleUnload) NOT_HERE(cuModuleGetFunction)
NOT_HERE(cuTexObjectCreate) NOT_HERE(cuTexObjectDestroy)
