/* Counts the allocations of Python objects and memory, for the component that is named now.
   Loaded by allocations.py; needs no headers of Python. */
#include <stddef.h>

typedef struct {
    void *ctx;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Allocator; /* PyMemAllocatorEx, in the stable part of CPython's API */

extern void PyMem_GetAllocator(int domain, Allocator *allocator);
extern void PyMem_SetAllocator(int domain, Allocator *allocator);

#define COMPONENTS 16
enum { MEM = 1, OBJ = 2 };
static Allocator inner[3];
static long long counts[COMPONENTS], bytes[COMPONENTS];
static int current, is_on;

static void note(size_t size) {
    if (is_on) {
        counts[current] += 1;
        bytes[current] += (long long)size;
    }
}

static void *counted_malloc(void *at, size_t size) {
    Allocator *to = at;
    note(size);
    return to->malloc(to->ctx, size);
}

static void *counted_calloc(void *at, size_t count, size_t size) {
    Allocator *to = at;
    note(count * size);
    return to->calloc(to->ctx, count, size);
}

static void *counted_realloc(void *at, void *old, size_t size) {
    Allocator *to = at;
    note(size);
    return to->realloc(to->ctx, old, size);
}

static void passed_free(void *at, void *old) {
    Allocator *to = at;
    to->free(to->ctx, old);
}

void install(void) {
    for (int domain = MEM; domain <= OBJ; domain++) {
        Allocator outer = {&inner[domain], counted_malloc, counted_calloc, counted_realloc,
                           passed_free};
        PyMem_GetAllocator(domain, &inner[domain]);
        PyMem_SetAllocator(domain, &outer);
    }
}

void count_for(int component) { current = component; }
void turn(int on) { is_on = on; }
long long count_of(int component) { return counts[component]; }
long long bytes_of(int component) { return bytes[component]; }
