/* A driver in software: libcuda.so.1 (soft_cuda.c) and libnvcuvid.so.1 (soft_nvcuvid.c), for FFmpeg's real CUDA code on
 * a machine without a GPU. The memory of the "device" is the process's own, and work runs when it is given.
 * Numbers, names and layouts are those of nv-codec-headers n13.0.19.0, written down again here. */
#include <stddef.h>
#include <stdint.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, PRIMARY_CONTEXT_ACTIVE = 708, NOT_SUPPORTED = 801
};

/* What memory holds that nobody has written, and that nobody may read any more. */
enum { UNWRITTEN = 0xC7, RELEASED = 0xD9 };

/* The result of a call that tests told to fail, 0 for others. It counts the call. */
int soft_called(const char *call);
/* The error that calls in a context return since `soft_break`, but for those that give back; 0 without one. */
int soft_broken(void);
/* Whether tests told NVDEC to have this fault. */
int soft_plays(const char *fault);
/* The device of the thread's current context, -1 without one. */
int soft_device(void);
/* INVALID_CONTEXT, and a complaint, where the thread has no current context. */
int soft_context(const char *call);
/* Something that NVIDIA's driver forbids or leaves undefined. */
void soft_complain(const char *text, ...) __attribute__((format(printf, 1, 2)));
/* Count something that there is now. */
void soft_count(const char *name, long long added);
/* Memory of the device; NULL when the limit on it is reached. */
void *soft_allocate(size_t size);
/* Fill the memory and free it. Whether it was allocated. */
int soft_release(void *memory);
/* Whether these bytes lie in one allocation. */
int soft_allocated(const void *memory, size_t size);
/* A library of FFmpeg by its name, from the folder that SOFT_GPU_LIBAV names; NULL where there is none. */
void *soft_library(const char *name);
