// What a kernel compiled for the emulator and the engine that runs it know of each other. Kernels are in libraries of
// their own (cuda.h is their CUDA); the engine (engine.cpp) is part of the runtime.
#pragma once

#include <cstdint>

namespace avo::emulator {

struct Dim {
  unsigned x, y, z;
};

// Where a thread waits, or does what it may not.
struct Site {
  const char *file;
  int line;
};

// What the thread that runs now is.
struct Thread {
  Dim thread, block;
  int rank; // of the block in its cluster
};

// The engine's side. Each of these is called by the running thread; those with a Site may let others run first.
struct Engine {
  // The value of lane `source`, which must take part; all lanes of the mask must call from one place.
  uint64_t (*shuffle)(uint32_t mask, uint64_t value, int source, Site);
  // The lanes of the mask whose predicate holds.
  uint32_t (*ballot)(uint32_t mask, bool predicate, Site);
  void (*block_barrier)(Site);
  void (*cluster_barrier)(Site);
  // Where another block of the cluster has what this block has at `own` in its shared memory.
  void *(*in_cluster)(void *own, int rank, Site);
  void *(*dynamic_shared)();
  // 16 bytes at a 16-byte boundary. Bytes that belong to no allocation hold the fill pattern; one byte at least must.
  void (*load_chunk)(const void *from, void *to, Site);
};

// A kernel library's side: one object, which the engine fills. `shared` is in the library's thread-local storage, as
// are all __shared__ variables and nothing else.
struct Library {
  const Engine *engine;
  const Thread *thread;
  Dim block, grid;
};

// One for each kernel.
struct Kernel {
  const char *name;
  void (*call)(void **params);
  Library *library;
};

} // namespace avo::emulator
