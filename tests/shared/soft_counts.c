/* What the driver in software counts and allocates, and what tests tell it. See soft_driver.h. */
#include "soft_driver.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Counts by name, complaints, and calls that are to fail. */

static struct { char name[48]; long long count; int is_call; } counts[256];
static int num_counts;
static char complaints[1 << 14];
static struct { char call[48]; int result, after, times; } failing;
static int broken;
static long long allocated_bytes, limit_bytes = 1LL << 40;

static void count(const char *name, long long added, int is_call) {
    pthread_mutex_lock(&lock);
    int each = 0;
    while (each < num_counts && strcmp(counts[each].name, name)) each++;
    if (each == num_counts && num_counts < 256) {
        snprintf(counts[num_counts].name, 48, "%s", name);
        counts[num_counts++].is_call = is_call;
    }
    if (each < num_counts) counts[each].count += added;
    pthread_mutex_unlock(&lock);
}

void soft_count(const char *name, long long added) { count(name, added, 0); }

long long soft_counted(const char *name) {
    long long found = 0;
    pthread_mutex_lock(&lock);
    for (int each = 0; each < num_counts; each++)
        if (!strcmp(counts[each].name, name)) found = counts[each].count;
    pthread_mutex_unlock(&lock);
    return found;
}

void soft_complain(const char *text, ...) {
    va_list values;
    va_start(values, text);
    pthread_mutex_lock(&lock);
    size_t used = strlen(complaints);
    if (used < sizeof complaints - 300) {
        used += (size_t)vsnprintf(complaints + used, 280, text, values);
        strcpy(complaints + used, "\n");
    }
    pthread_mutex_unlock(&lock);
    va_end(values);
}

const char *soft_complaints(void) { return complaints; }

/* Tests use one process for many cases. What there is now is not forgotten. */
void soft_forget(void) {
    pthread_mutex_lock(&lock);
    for (int each = 0; each < num_counts; each++)
        if (counts[each].is_call) counts[each].count = 0;
    complaints[0] = 0;
    failing.call[0] = 0;
    broken = SUCCESS;
    limit_bytes = 1LL << 40;
    pthread_mutex_unlock(&lock);
}

/* From the call after `after` others on, this one returns `result`. */
void soft_fail(const char *call, int after, int result) {
    pthread_mutex_lock(&lock);
    snprintf(failing.call, sizeof failing.call, "%s", call);
    failing.after = after;
    failing.result = result;
    failing.times = 0;
    pthread_mutex_unlock(&lock);
}

/* As after an error that lasts, such as an illegal address: whatever does work in a context fails with it. */
void soft_break(int result) { broken = result; }
int soft_broken(void) { return broken; }

/* A fault that NVDEC plays: soft_nvcuvid.c has their names. */
static char fault[64];
void soft_play(const char *name) { snprintf(fault, sizeof fault, "%s", name); }
int soft_plays(const char *name) { return !strcmp(fault, name); }

void soft_limit(long long bytes) { limit_bytes = bytes; }
long long soft_bytes(void) { return allocated_bytes; }

int soft_called(const char *call) {
    count(call, 1, 1);
    pthread_mutex_lock(&lock);
    int fails = !strcmp(failing.call, call) && failing.after-- <= 0 && (!failing.times || failing.after >= -failing.times);
    pthread_mutex_unlock(&lock);
    return fails ? failing.result : SUCCESS;
}

/* At the end of a process that cannot be asked, such as ffmpeg: a file with its counts and its complaints. */
__attribute__((destructor)) static void report(void) {
    const char *folder = getenv("SOFT_GPU_REPORTS");
    if (!folder || !num_counts) return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    FILE *file = fopen(path, "w");
    if (!file) return;
    for (int each = 0; each < num_counts; each++) fprintf(file, "%s %lld\n", counts[each].name, counts[each].count);
    fprintf(file, "bytes left %lld\n", allocated_bytes);
    for (char *line = strtok(complaints, "\n"); line; line = strtok(NULL, "\n")) fprintf(file, "complaint: %s\n", line);
    fclose(file);
}

/* Memory. */

typedef struct Allocation { struct Allocation *next; size_t size; _Alignas(512) unsigned char bytes[]; } Allocation;
static Allocation *allocations;

void *soft_allocate(size_t size) {
    pthread_mutex_lock(&lock);
    Allocation *made = NULL;
    if (allocated_bytes + (long long)size <= limit_bytes)
        made = aligned_alloc(512, (sizeof *made + size + 511) / 512 * 512);
    if (made) {
        made->size = size;
        made->next = allocations;
        allocations = made;
        allocated_bytes += (long long)size;
        memset(made->bytes, UNWRITTEN, size);
    }
    pthread_mutex_unlock(&lock);
    return made ? made->bytes : NULL;
}

int soft_release(void *memory) {
    pthread_mutex_lock(&lock);
    Allocation **at = &allocations;
    while (*at && (*at)->bytes != memory) at = &(*at)->next;
    Allocation *found = *at;
    if (found) {
        *at = found->next;
        allocated_bytes -= (long long)found->size;
        memset(found->bytes, RELEASED, found->size);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

int soft_allocated(const void *memory, size_t size) {
    const unsigned char *start = memory;
    int inside = 0;
    pthread_mutex_lock(&lock);
    for (Allocation *each = allocations; each && !inside; each = each->next)
        inside = start >= each->bytes && start + size <= each->bytes + each->size;
    pthread_mutex_unlock(&lock);
    return inside;
}

/* A process that cannot be told is told by its environment: SOFT_GPU_BYTES, and SOFT_GPU_FAIL="call after result times",
 * of which the last is how many calls fail, or all if it is not given. */
__attribute__((constructor)) static void read_environment(void) {
    const char *bytes = getenv("SOFT_GPU_BYTES"), *fail = getenv("SOFT_GPU_FAIL");
    if (bytes) limit_bytes = atoll(bytes);
    if (fail) sscanf(fail, "%47s %d %d %d", failing.call, &failing.after, &failing.result, &failing.times);
}

/* FFmpeg's libraries, for the decoders and encoders behind the driver. */

void *soft_library(const char *name) {
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s/%s*.so*", getenv("SOFT_GPU_LIBAV") ? getenv("SOFT_GPU_LIBAV") : ".", name);
    glob_t found;
    void *opened = glob(pattern, 0, NULL, &found) ? NULL : dlopen(found.gl_pathv[0], RTLD_NOW);
    if (!opened) soft_complain("%s cannot be loaded: %s", pattern, dlerror());
    return opened;
}
