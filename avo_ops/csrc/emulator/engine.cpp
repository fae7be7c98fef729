// Runs kernels: the blocks of a grid one after another (those of a cluster together), each thread a fiber that runs
// until it waits. What threads wait for is recorded, so that a wait that cannot end, or that CUDA leaves undefined, is
// said at once with both places.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../runtime/message.h"
#include "fibers.h"
#include "launch.h"

extern "C" {
__attribute__((weak)) void *__asan_region_is_poisoned(void *begin, size_t size);
__attribute__((weak)) int __asan_address_is_poisoned(const volatile void *address);
__attribute__((weak)) void __asan_report_load_n(void *address, size_t size);

struct TlsIndex {
  unsigned long module, offset;
};
void *__tls_get_addr(TlsIndex *);
}

namespace avo::emulator {
namespace {

enum class State : uint8_t { Ready, Warp, Block, Cluster, Exited };

struct EmulatedThread {
  Thread seen{}; // by the kernel
  Fiber fiber;
  State state = State::Ready;
  int number = 0;                       // in its block
  size_t warp_begin = 0, warp_size = 0; // where its warp is in the order
  Site site{};                          // of its wait
  // Of a wait in the warp.
  bool votes = false;
  uint32_t mask = 0;
  int source = 0;
  uint64_t value = 0; // given, then received
};

std::string text(const Dim &d) { return join("(", d.x, ", ", d.y, ", ", d.z, ")"); }
std::string text(const Site &site) { return join(site.file, ":", site.line); }
std::string hex(uint32_t mask) {
  char room[16];
  std::snprintf(room, sizeof room, "0x%08x", mask);
  return room;
}

bool same(const Site &a, const Site &b) {
  return a.line == b.line && (a.file == b.file || !std::strcmp(a.file, b.file));
}

// ---- shared memory ----

struct Bytes {
  char *begin = nullptr;
  size_t size = 0;
  bool holds(const void *p) const { return p >= begin && p < begin + size; }
};

// Where this thread of the process has the __shared__ variables of a library: its thread-local storage.
Bytes static_shared(const Library *library) {
  struct Search {
    const Library *library;
    Bytes found;
  } search{library, {}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &search = *static_cast<Search *>(data);
        auto address = reinterpret_cast<uintptr_t>(search.library);
        bool ours = false;
        size_t size = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto &segment = info->dlpi_phdr[i];
          uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
          if (segment.p_type == PT_LOAD) ours = ours || (address >= begin && address < begin + segment.p_memsz);
          if (segment.p_type == PT_TLS) size = segment.p_memsz;
        }
        if (!ours) return 0;
        TlsIndex index{info->dlpi_tls_modid, 0};
        if (size) search.found = {static_cast<char *>(__tls_get_addr(&index)), size};
        return 1;
      },
      &search);
  return search.found;
}

struct Free {
  void operator()(void *p) const { std::free(p); }
};

// The shared memory of a cluster's blocks. Static variables have one address for all of them: the block that runs has
// its bytes there, the others theirs in `images`.
class SharedMemory {
public:
  SharedMemory(Bytes fixed, int blocks, size_t dynamic_bytes) : fixed_(fixed), images_(blocks) {
    for (int i = 0; i < blocks && blocks > 1; ++i) images_[i].resize(fixed.size);
    for (int i = 0; i < blocks && dynamic_bytes; ++i) {
      void *memory = nullptr;
      if (posix_memalign(&memory, 128, dynamic_bytes)) throw std::bad_alloc();
      dynamic_.emplace_back(static_cast<char *>(memory));
    }
    dynamic_bytes_ = dynamic_bytes;
  }

  void fill(uint8_t pattern) {
    if (fixed_.size) std::memset(fixed_.begin, pattern, fixed_.size);
    for (auto &image : images_) std::fill(image.begin(), image.end(), static_cast<char>(pattern));
    for (auto &memory : dynamic_) std::memset(memory.get(), pattern, dynamic_bytes_);
  }

  void enter(int rank) {
    if (rank == entered_) return;
    if (fixed_.size) {
      std::memcpy(images_[entered_].data(), fixed_.begin, fixed_.size);
      std::memcpy(fixed_.begin, images_[rank].data(), fixed_.size);
    }
    entered_ = rank;
  }

  char *dynamic(int rank) const { return dynamic_.empty() ? nullptr : dynamic_[rank].get(); }

  // What `own` is in another block; null if it is not shared memory of this one.
  char *in_block(void *own, int rank) {
    auto *p = static_cast<char *>(own);
    if (rank == entered_) return p;
    if (fixed_.holds(p)) return images_[rank].data() + (p - fixed_.begin);
    Bytes mine{dynamic(entered_), dynamic_bytes_};
    return mine.holds(p) ? dynamic(rank) + (p - mine.begin) : nullptr;
  }

private:
  Bytes fixed_;
  int entered_ = 0;
  std::vector<std::vector<char>> images_;
  std::vector<std::unique_ptr<char, Free>> dynamic_;
  size_t dynamic_bytes_ = 0;
};

// ---- a grid ----

// One grid. Its methods run on the stacks of the threads, but for run and run_cluster.
class Grid {
public:
  Grid(Library &library, const Kernel &kernel, const Launch &launch, void **params, const Options &options)
      : library_(library), kernel_(kernel), launch_(launch), params_(params), options_(options),
        block_size_(static_cast<int>(launch.block.x * launch.block.y * launch.block.z)), random_(options.seed),
        threads_(static_cast<size_t>(block_size_) * launch.cluster), blocks_(launch.cluster),
        shared_(static_shared(&library), launch.cluster, launch.shared_bytes) {}

  // An empty text, or what went wrong.
  std::string run();

  uint64_t in_warp(bool votes, uint32_t mask, uint64_t value, int source, Site site);
  void at_barrier(State which, Site site);
  void *in_cluster(void *own, int rank, Site site);
  void *dynamic_shared() { return shared_.dynamic(current_->seen.rank); }
  void load_chunk(const void *from, void *to, Site site);
  void body();
  std::string running_thread() const;

private:
  struct BlockState {
    int waiting = 0, exited = 0;
    const EmulatedThread *first = nullptr; // that waits at the barrier
  };

  template <class T> void arrange(std::vector<T> &order);
  void run_cluster(int64_t number);
  size_t next_position() const;
  void resume_next(bool last);
  void release(size_t begin, size_t end);
  void check_awaited(const EmulatedThread &thread, const char *does);
  void check_together(const EmulatedThread &thread, const EmulatedThread &other);
  bool complete(EmulatedThread *lanes, const EmulatedThread &thread);
  EmulatedThread *warp_of(const EmulatedThread &thread);
  int lanes_of(const EmulatedThread &thread) const { return std::min(32, block_size_ - thread.number / 32 * 32); }
  std::string name(const EmulatedThread &thread) const;
  std::string place(const EmulatedThread &thread) const;
  [[noreturn]] void fail(Site site, const std::string &what);

  Library &library_;
  const Kernel &kernel_;
  const Launch &launch_;
  void **params_;
  const Options &options_;
  const int block_size_;
  std::mt19937 random_;
  std::vector<EmulatedThread> threads_; // of a cluster, block by block
  std::vector<BlockState> blocks_;
  BlockState cluster_; // its barrier; `exited`: threads of any block
  bool cluster_met_ = false;
  int warp_waits_ = 0; // threads that wait for lanes
  SharedMemory shared_;
  std::vector<EmulatedThread *> order_; // in which threads run
  size_t position_ = 0;
  EmulatedThread *current_ = nullptr;
  Fiber launcher_;
  std::string fault_;
};

Grid *grid = nullptr; // that runs: one at a time in the process

std::mutex &launch_mutex() {
  static auto *mutex = new std::mutex;
  return *mutex;
}

Stacks &stacks() {
  static auto *stacks = new Stacks;
  return *stacks;
}

void begin_thread() {
  fiber_began();
  grid->body();
}

template <class T> void Grid::arrange(std::vector<T> &order) {
  if (options_.order == Order::Descending) std::reverse(order.begin(), order.end());
  if (options_.order == Order::Random)
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
}

std::string Grid::run() {
  if (launch_.grid.x % launch_.cluster)
    return join("a grid of ", launch_.grid.x, " blocks in clusters of ", launch_.cluster);
  if (block_size_ < 1 || block_size_ > 1024) return join("a block of ", block_size_, " threads");
  stacks().reserve(threads_.size());
  library_.block = launch_.block;
  library_.grid = launch_.grid;
  std::vector<int64_t> clusters(static_cast<size_t>(launch_.grid.x) / launch_.cluster * launch_.grid.y *
                                launch_.grid.z);
  std::iota(clusters.begin(), clusters.end(), 0);
  arrange(clusters);
  for (int64_t number : clusters) {
    run_cluster(number);
    if (fault_.empty()) continue;
    stacks().abandon(threads_.size());
    return fault_;
  }
  return "";
}

void Grid::run_cluster(int64_t number) {
  const int64_t across = launch_.grid.x / launch_.cluster;
  const Dim first{static_cast<unsigned>(number % across * launch_.cluster),
                  static_cast<unsigned>(number / across % launch_.grid.y),
                  static_cast<unsigned>(number / across / launch_.grid.y)};
  const Dim &size = launch_.block;
  for (size_t i = 0; i < threads_.size(); ++i) {
    EmulatedThread &thread = threads_[i];
    auto n = static_cast<unsigned>(thread.number = static_cast<int>(i) % block_size_);
    thread.seen.rank = static_cast<int>(i) / block_size_;
    thread.seen.thread = {n % size.x, n / size.x % size.y, n / size.x / size.y};
    thread.seen.block = {first.x + static_cast<unsigned>(thread.seen.rank), first.y, first.z};
    thread.state = State::Ready;
    prepare(thread.fiber, stacks()[i], begin_thread);
  }
  std::fill(blocks_.begin(), blocks_.end(), BlockState{});
  cluster_ = {};
  cluster_met_ = false;
  shared_.fill(options_.fill);
  // Blocks in an order, the warps of each, and their lanes: a block's statics are then exchanged seldom.
  std::vector<int> ranks(launch_.cluster);
  std::iota(ranks.begin(), ranks.end(), 0);
  arrange(ranks);
  order_.clear();
  for (int rank : ranks) {
    std::vector<int> warps((block_size_ + 31) / 32);
    std::iota(warps.begin(), warps.end(), 0);
    arrange(warps);
    for (int warp : warps) {
      std::vector<EmulatedThread *> lanes;
      for (int i = warp * 32; i < std::min(block_size_, warp * 32 + 32); ++i)
        lanes.push_back(&threads_[static_cast<size_t>(rank) * block_size_ + i]);
      arrange(lanes);
      for (EmulatedThread *lane : lanes) lane->warp_begin = order_.size(), lane->warp_size = lanes.size();
      order_.insert(order_.end(), lanes.begin(), lanes.end());
    }
  }
  position_ = order_.size() - 1;
  current_ = nullptr;
  resume_next(false);
}

// The position of the next thread that can run, or the size of the order. In ascending order all take turns; in the
// others a warp runs on as long as it can, so that it overtakes the rest of its block between two barriers.
size_t Grid::next_position() const {
  if (current_ && options_.order != Order::Ascending) {
    const size_t begin = current_->warp_begin, size = current_->warp_size;
    for (size_t i = 1; i <= size; ++i) {
      const size_t p = begin + (position_ - begin + i) % size;
      if (order_[p]->state == State::Ready) return p;
    }
  }
  for (size_t i = 1; i <= order_.size(); ++i) {
    const size_t p = position_ + i < order_.size() ? position_ + i : position_ + i - order_.size();
    if (order_[p]->state == State::Ready) return p;
  }
  return order_.size();
}

// Runs the next thread that can; back to the launcher if there is none. Returns when this thread's turn has come.
void Grid::resume_next(bool last) {
  Fiber &from = current_ ? current_->fiber : launcher_;
  if (const size_t next = next_position(); next < order_.size()) {
    position_ = next;
    if (order_[next] == current_) return;
    current_ = order_[next];
    library_.thread = &current_->seen;
    shared_.enter(current_->seen.rank);
    switch_fibers(from, current_->fiber, last);
    return;
  }
  if (cluster_.exited < static_cast<int>(threads_.size())) {
    const auto stuck = std::find_if(threads_.begin(), threads_.end(), [](auto &t) { return t.state != State::Exited; });
    fault_ = join(place(*stuck), ": deadlock, no thread can go on");
    for (State state : {State::Warp, State::Block, State::Cluster})
      for (const auto &thread : threads_)
        if (thread.state == state) {
          fault_ += join("; ", name(thread), " waits at ", text(thread.site));
          break;
        }
  }
  if (!current_) return;
  current_ = nullptr;
  switch_fibers(from, launcher_, true);
}

void Grid::body() {
  kernel_.call(params_);
  EmulatedThread &thread = *current_;
  check_awaited(thread, "returned");
  BlockState &block = blocks_[thread.seen.rank];
  for (const BlockState *barrier :
       {static_cast<const BlockState *>(&block), static_cast<const BlockState *>(&cluster_)})
    if (barrier->waiting)
      fail(barrier->first->site,
           join("divergent barrier: ", name(*barrier->first), " waits, but ", name(thread), " has returned"));
  thread.state = State::Exited;
  ++block.exited;
  ++cluster_.exited;
  resume_next(true);
}

// ---- waits ----

void Grid::release(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) threads_[i].state = State::Ready;
}

void Grid::at_barrier(State which, Site site) {
  EmulatedThread &thread = *current_;
  check_awaited(thread, "waits at a barrier");
  const bool all = which == State::Cluster;
  BlockState &barrier = all ? cluster_ : blocks_[thread.seen.rank];
  const size_t size = all ? threads_.size() : block_size_, begin = all ? 0 : size_t(thread.seen.rank) * block_size_;
  if (barrier.exited) {
    const auto gone = std::find_if(threads_.begin() + begin, threads_.begin() + begin + size,
                                   [](auto &t) { return t.state == State::Exited; });
    fail(site, join("divergent barrier: ", name(thread), " waits, but ", name(*gone), " has returned"));
  }
  if (barrier.waiting && !same(barrier.first->site, site))
    fail(site, join("divergent barrier: ", name(thread), " waits here, but ", name(*barrier.first), " at ",
                    text(barrier.first->site)));
  thread.state = which;
  thread.site = site;
  if (barrier.waiting++ == 0) barrier.first = &thread;
  if (static_cast<size_t>(barrier.waiting) == size) {
    barrier.waiting = 0;
    release(begin, begin + size);
    cluster_met_ = cluster_met_ || all;
  }
  resume_next(false);
}

EmulatedThread *Grid::warp_of(const EmulatedThread &thread) {
  return &threads_[static_cast<size_t>(thread.seen.rank) * block_size_ + thread.number / 32 * 32];
}

// A lane that has left, or stands elsewhere, cannot come to where others of its warp wait for it.
void Grid::check_awaited(const EmulatedThread &thread, const char *does) {
  if (!warp_waits_) return;
  const EmulatedThread *lanes = warp_of(thread);
  for (int i = 0; i < lanes_of(thread); ++i)
    if (lanes[i].state == State::Warp && lanes[i].mask >> thread.number % 32 & 1)
      fail(lanes[i].site, join("absent lane: ", name(lanes[i]), " waits for the lanes ", hex(lanes[i].mask), ", but ",
                               name(thread), " ", does));
}

void Grid::check_together(const EmulatedThread &thread, const EmulatedThread &other) {
  if (other.mask != thread.mask || other.votes != thread.votes || !same(other.site, thread.site))
    fail(thread.site, join("divergent warp: ", name(thread), " waits for the lanes ", hex(thread.mask), ", but ",
                           name(other), " for ", hex(other.mask), " at ", text(other.site)));
}

// Whether all lanes of the mask are there.
bool Grid::complete(EmulatedThread *lanes, const EmulatedThread &thread) {
  bool all = true;
  for (uint32_t left = thread.mask; left; left &= left - 1) {
    const int i = __builtin_ctz(left);
    if (i >= lanes_of(thread))
      fail(thread.site,
           join("absent lane: the mask ", hex(thread.mask), " names lane ", i, ", the warp has ", lanes_of(thread)));
    const EmulatedThread &other = lanes[i];
    if (other.state == State::Ready) {
      all = false;
    } else if (other.state != State::Warp) {
      fail(thread.site,
           join("absent lane: ", name(thread), " waits for the lanes ", hex(thread.mask), ", but ", name(other),
                other.state == State::Exited ? " has returned" : " waits at " + text(other.site)));
    } else {
      check_together(thread, other);
    }
  }
  return all;
}

uint64_t Grid::in_warp(bool votes, uint32_t mask, uint64_t value, int source, Site site) {
  EmulatedThread &thread = *current_;
  const int lane = thread.number % 32;
  if (!(mask >> lane & 1)) fail(site, join("absent lane: the mask ", hex(mask), " is without the calling lane ", lane));
  if (!votes && !(mask >> source & 1))
    fail(site, join("absent lane: it reads lane ", source, ", which the mask ", hex(mask), " is without"));
  EmulatedThread *lanes = warp_of(thread);
  thread.site = site;
  thread.votes = votes;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  for (int i = 0; i < lanes_of(thread); ++i)
    if (lanes[i].state == State::Warp && lanes[i].mask >> lane & 1) check_together(thread, lanes[i]);
  thread.state = State::Warp;
  ++warp_waits_;
  if (complete(lanes, thread)) {
    uint64_t given[32], holds = 0;
    for (uint32_t left = mask; left; left &= left - 1) {
      const int i = __builtin_ctz(left);
      given[i] = lanes[i].value;
      holds |= (given[i] ? uint64_t{1} : 0) << i;
    }
    for (uint32_t left = mask; left; left &= left - 1) {
      EmulatedThread &one = lanes[__builtin_ctz(left)];
      one.value = votes ? holds : given[one.source];
      one.state = State::Ready;
      --warp_waits_;
    }
  }
  resume_next(false);
  return thread.value;
}

// ---- memory ----

void *Grid::in_cluster(void *own, int rank, Site site) {
  const int blocks = launch_.cluster;
  if (rank < 0 || rank >= blocks) fail(site, join("there is no block ", rank, " in a cluster of ", blocks));
  if (rank == current_->seen.rank) return own;
  if (!cluster_met_) fail(site, join("block ", rank, " of the cluster may not have begun: no cluster barrier yet"));
  if (blocks_[rank].exited) fail(site, join("block ", rank, " of the cluster has returned: its shared memory is gone"));
  void *found = shared_.in_block(own, rank);
  if (!found) fail(site, "this address is not in shared memory");
  return found;
}

void Grid::load_chunk(const void *from, void *to, Site site) {
  auto *bytes = static_cast<const char *>(from);
  if (reinterpret_cast<uintptr_t>(from) % 16) fail(site, join("misaligned: 16 bytes are read at ", from));
  if (!__asan_region_is_poisoned || !__asan_region_is_poisoned(const_cast<void *>(from), 16)) {
    std::memcpy(to, from, 16);
    return;
  }
  bool any = false;
  for (int i = 0; i < 16; ++i) {
    const bool exists = !__asan_address_is_poisoned(bytes + i);
    static_cast<char *>(to)[i] = exists ? bytes[i] : static_cast<char>(options_.fill);
    any = any || exists;
  }
  if (!any) __asan_report_load_n(const_cast<void *>(from), 16);
}

// ---- faults ----

std::string Grid::name(const EmulatedThread &thread) const {
  std::string name = join("thread ", launch_.block.y * launch_.block.z == 1 ? std::to_string(thread.seen.thread.x)
                                                                            : text(thread.seen.thread));
  return launch_.cluster > 1 ? join(name, " of block ", text(thread.seen.block)) : name;
}

std::string Grid::place(const EmulatedThread &thread) const {
  return join("kernel ", kernel_.name, ", block ", text(thread.seen.block), ", thread ", text(thread.seen.thread));
}

std::string Grid::running_thread() const { return current_ ? place(*current_) : join("kernel ", kernel_.name); }

void Grid::fail(Site site, const std::string &what) {
  fault_ = join(place(*current_), ", ", text(site), ": ", what);
  Fiber &from = current_->fiber;
  current_ = nullptr;
  switch_fibers(from, launcher_, true);
  std::abort(); // never resumed
}

const Engine kEngine = {
    .shuffle = [](uint32_t mask, uint64_t value, int source,
                  Site site) { return grid->in_warp(false, mask, value, source, site); },
    .ballot = [](uint32_t mask, bool predicate,
                 Site site) { return static_cast<uint32_t>(grid->in_warp(true, mask, predicate, 0, site)); },
    .block_barrier = [](Site site) { grid->at_barrier(State::Block, site); },
    .cluster_barrier = [](Site site) { grid->at_barrier(State::Cluster, site); },
    .in_cluster = [](void *own, int rank, Site site) { return grid->in_cluster(own, rank, site); },
    .dynamic_shared = [] { return grid->dynamic_shared(); },
    .load_chunk = [](const void *from, void *to, Site site) { grid->load_chunk(from, to, site); },
};

} // namespace

Kernels::Kernels(const char *path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
  if (!handle_) fail(dlerror());
  auto *library = static_cast<Library *>(dlsym(handle_, "avo_emulated_library"));
  if (!library) fail(path, " is no library of emulated kernels");
  library->engine = &kEngine;
}

const Kernel *Kernels::find(const std::string &name) const {
  return static_cast<const Kernel *>(dlsym(handle_, (name + "__emulated").c_str()));
}

void launch(const Kernel &kernel, const Launch &launch, void **params, const Options &options) {
  std::lock_guard<std::mutex> lock(launch_mutex());
  Grid running(*kernel.library, kernel, launch, params, options);
  struct Running {
    ~Running() { grid = nullptr; }
  } until_the_end;
  grid = &running;
  std::string fault = running.run();
  if (!fault.empty()) fail("avo emulator: ", fault);
}

void print_running_thread() {
  if (grid) std::fprintf(stderr, "avo emulator: %s\n", grid->running_thread().c_str());
}

} // namespace avo::emulator
