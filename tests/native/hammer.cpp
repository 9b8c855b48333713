// Threads, and processes that are killed, hammer what processes share; built with a sanitizer: see `make sanitize`.
//
// Usage: hammer [seconds of each part, 0.5 by default]. Ends with 1 at the first thing that is not as it has to be.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "replay/buffer.h"
#include "replay/sampler.h"
#include "replay/writer.h"
#include "ring.h"
#include "slot_table.h"
#include "weights_block.h"

namespace {

using namespace penstock;  // NOLINT: a program of one file
using Clock = std::chrono::steady_clock;

double g_seconds = 0.5;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "hammer: %s\n", what);
  std::abort();
}

class Until {
 public:
  explicit Until(double seconds) : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool is_over() const { return Clock::now() >= end_; }

 private:
  Clock::time_point end_;
};

using Work = std::function<void()>;

void in_threads(const std::vector<Work>& works) {
  std::vector<std::thread> threads;
  for (const Work& work : works) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

// Forks a process for each work, kills all at a random moment, and calls `check` afterwards; again and again.
void in_killed_processes(const std::vector<Work>& works, const Work& check) {
  Random random(7);
  const Until end(g_seconds);
  do {
    std::vector<pid_t> children;
    for (const Work& work : works) {
      const pid_t pid = fork();
      require(pid >= 0, "fork failed");
      if (pid == 0) {
        for (;;) work();
      }
      children.push_back(pid);
    }
    usleep(static_cast<useconds_t>(2000 + random.below(8000)));
    for (const pid_t pid : children) kill(pid, SIGKILL);
    for (const pid_t pid : children) waitpid(pid, nullptr, 0);
    check();
  } while (!end.is_over());
}

// ---- ring: what is pushed is popped once

void ring_between_threads() {
  const Arena arena = Arena::create(Ring::nbytes(64));
  Ring ring = Ring::create(arena, 0, 64);
  constexpr int64_t kProducers = 3;
  std::atomic<int64_t> pushed{0}, popped{0}, left{kProducers};
  std::vector<Work> works;
  for (int64_t producer = 0; producer < kProducers; ++producer) {
    works.push_back([&, producer] {
      int64_t values[5];
      for (const Until end(g_seconds); !end.is_over();) {
        std::iota(values, values + 5, producer * 100);
        const size_t count = ring.try_push(values, 5);
        pushed += std::accumulate(values, values + count, int64_t{0});
      }
      --left;
    });
  }
  for (int consumer = 0; consumer < 2; ++consumer) {
    works.push_back([&] {
      int64_t values[7];
      for (;;) {
        const bool are_done = left == 0;
        const size_t count = ring.try_pop(values, 7);
        popped += std::accumulate(values, values + count, int64_t{0});
        if (count == 0 && are_done) return;
      }
    });
  }
  in_threads(works);
  require(pushed == popped && ring.size() == 0, "the ring has lost or doubled items");
}

void ring_of_killed_processes() {
  const Arena arena = Arena::create(Ring::nbytes(64));
  Ring ring = Ring::create(arena, 0, 64);
  const int64_t values[] = {1, 2, 3, 4, 5};
  int64_t out[64];
  in_killed_processes({[&] { ring.try_push(values, 5); }, [&] { ring.try_pop(out, 3); }}, [&] {
    ring.clear();
    require(ring.try_push(values, 5) == 5 && ring.try_pop(out, 64) == 5 && out[4] == 5, "the ring is broken by a death");
  });
}

// ---- slot table: who has claimed a slot has it alone

void slots_between_threads() {
  constexpr size_t kSlots = 8;
  const Arena arena = Arena::create(SlotTable::nbytes(kSlots));
  SlotTable table = SlotTable::create(arena, 0, kSlots);
  struct alignas(64) Content {
    int64_t first = 0, second = 0;  // plain: the claim alone keeps others away
  };
  std::vector<Content> contents(kSlots);
  const auto move = [&](uint8_t from, uint8_t to, int32_t owner) {
    for (const Until end(g_seconds); !end.is_over();) {
      for (size_t slot = 0; slot < kSlots; ++slot) {
        if (!table.claim(slot, from, to, owner, std::nullopt)) continue;
        require(contents[slot].first == contents[slot].second, "two have had a slot at once");
        ++contents[slot].first;
        ++contents[slot].second;
        require(table.claim(slot, to, to == 1 ? 2 : 0, owner, owner), "a slot was taken from its owner");
      }
    }
  };
  in_threads({[&] { move(0, 1, 1); }, [&] { move(0, 1, 2); }, [&] { move(2, 3, 3); }, [&] { move(2, 3, 4); }});
}

// ---- weights: a reader sees one version, whole

struct Weights {
  static constexpr size_t kWords = 1000;
  explicit Weights(const Arena& arena) : block(WeightsBlock::create(arena, 0, kWords * 8)) {}

  void publish() {
    ++version;
    const std::vector<int64_t> words(kWords, version);
    block.publish(words.data(), version);
  }
  void read() const {
    std::vector<int64_t> words(kWords);
    const int64_t found = block.read_into(words.data());
    if (found < 0) return;
    for (const int64_t word : words) require(word == found, "weights are of two versions");
  }

  WeightsBlock block;
  int64_t version = 0;
};

void weights_between_threads() {
  const Arena arena = Arena::create(WeightsBlock::nbytes(Weights::kWords * 8));
  Weights weights(arena);
  const auto again = [](auto what) {
    for (const Until end(g_seconds); !end.is_over();) what();
  };
  const Work read = [&] { again([&] { weights.read(); }); };
  in_threads({[&] { again([&] { weights.publish(); }); }, read, read});
}

void weights_of_killed_processes() {
  const Arena arena = Arena::create(WeightsBlock::nbytes(Weights::kWords * 8));
  Weights weights(arena);
  in_killed_processes({[&] { weights.publish(); }, [&] { weights.read(); }}, [&] {
    weights.read();
    weights.version = std::max<int64_t>(weights.block.version(), 0);
  });
}

// ---- robust mutex and sum tree: the holder may be killed, and the next one puts the tree right

struct GuardedTree {
  static constexpr size_t kRows = 700;
  static size_t nbytes() { return whole_lines(sizeof(RobustMutex)) + SumTree::nbytes(kRows); }
  explicit GuardedTree(const Arena& arena)
      : mutex(*new (arena.base()) RobustMutex), tree(SumTree::create(arena, whole_lines(sizeof(RobustMutex)), kRows)) {
    mutex.initialise();
  }

  void change(Random& random) {
    if (mutex.lock()) tree.rebuild();
    uint64_t rows[16];
    for (uint64_t& row : rows) {
      row = random.below(kRows);
      tree.set_leaf(row, static_cast<double>(random.below(1000)));
    }
    tree.refresh(rows, 16);
    mutex.unlock();
  }
  void draw(Random& random) {
    if (mutex.lock()) tree.rebuild();
    double total = 0;
    for (size_t row = 0; row < kRows; ++row) total += tree.leaf(row);
    require(total == tree.total(), "the tree does not hold the sum of its leaves");
    if (total > 0) {
      const double mass = random.uniform() * total;
      uint64_t row = 0;
      tree.draw(&mass, 1, &row);
      require(row < kRows && tree.leaf(row) > 0, "a row without a chance was drawn");
    }
    mutex.unlock();
  }

  RobustMutex& mutex;
  SumTree tree;
};

void tree_between_threads() {
  const Arena arena = Arena::create(GuardedTree::nbytes());
  GuardedTree tree(arena);
  std::vector<Work> works;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    works.push_back([&, seed] {
      Random random(seed);
      for (const Until end(g_seconds); !end.is_over();) seed % 2 ? tree.change(random) : tree.draw(random);
    });
  }
  in_threads(works);
}

void tree_of_killed_processes() {
  const Arena arena = Arena::create(GuardedTree::nbytes());
  GuardedTree tree(arena);
  Random random(3);
  in_killed_processes({[&] { tree.change(random); }, [&] { tree.change(random); }}, [&] { tree.draw(random); });
}

// ---- replay buffer: rows are read whole, whichever way they are drawn

struct Replay {
  static constexpr size_t kCapacity = 200, kWords = 40, kBatch = 32;

  static Schema schema(bool evicts) {
    Schema made{};
    made.fields.push_back({.name = "words", .step_nbytes = kWords * 8, .stored_nbytes = kWords * 8, .offset = 0,
                           .taken = Taken::kFirst, .letter = 'l', .once = false, .frame_store = -1, .outer = 1,
                           .depth = 1, .inner = kWords * 8});
    made.episode_offset = kWords * 8;
    made.record_nbytes = made.episode_offset + 8;
    made.evicts = evicts;
    return made;
  }
  static PriorityPlan plan(bool evicts) { return {0.6, 1e-6, evicts ? std::optional<double>(-0.4) : std::nullopt}; }

  explicit Replay(bool evicts)
      : control(Arena::create(Buffer::sizes(schema(evicts), kCapacity, true).control)),
        data(Arena::create(Buffer::sizes(schema(evicts), kCapacity, true).data)),
        evicts(evicts),
        buffer(Buffer::create(control, data, schema(evicts), kCapacity, plan(evicts))) {}
  // What another process would have of it.
  Buffer attached() const { return Buffer::attach(control, data, schema(evicts), kCapacity, plan(evicts)); }

  Arena control, data;
  bool evicts;
  Buffer buffer;
};

struct Adds {
  explicit Adds(const Replay& replay, uint64_t seed) : buffer(replay.attached()), writer(buffer, seed), number(seed) {}

  void operator()() {
    std::vector<int64_t> words(3 * Replay::kWords);
    for (size_t row = 0; row < 3; ++row) std::fill_n(words.begin() + row * Replay::kWords, Replay::kWords, ++number);
    const auto* values = reinterpret_cast<const std::byte*>(words.data());
    const bool ends[] = {false, true, false};
    writer.begin_add();
    writer.write(&values, 3, nullptr, ends);
    writer.end_add();
  }

  Buffer buffer;
  BufferWriter writer;
  int64_t number;
};

struct Samples {
  explicit Samples(const Replay& replay, uint64_t seed) : buffer(replay.attached()), threads(1), sampler(buffer, threads, seed) {}

  void operator()() {
    std::vector<int64_t> words(Replay::kBatch * Replay::kWords);
    BatchArrays batch{.fields = {reinterpret_cast<std::byte*>(words.data())}, .discount = nullptr, .mask = nullptr};
    float weights[Replay::kBatch];
    const bool by_priority = ++turn % 2 == 0;
    const bool found = by_priority ? sampler.prioritized(Replay::kBatch, true, 0.4, false, batch, weights)
                                   : sampler.uniform(Replay::kBatch, batch);
    if (!found) return;
    for (size_t row = 0; row < Replay::kBatch; ++row) {
      for (size_t i = 0; i < Replay::kWords; ++i) {
        require(words[row * Replay::kWords + i] == words[row * Replay::kWords], "a row is of two records");
      }
    }
    std::vector<double> priorities(Replay::kBatch, 0.5 + static_cast<double>(turn % 7));
    buffer.priorities()->update(buffer.rows(), reinterpret_cast<const int64_t*>(sampler.ids().data()), priorities.data(),
                                Replay::kBatch);
  }

  Buffer buffer;
  Threads threads;
  Sampler sampler;
  uint64_t turn = 0;
};

void replay_between_threads(bool evicts) {
  Replay replay(evicts);
  std::vector<Work> works;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    works.push_back([&, seed] {
      Adds add(replay, seed);
      for (const Until end(g_seconds); !end.is_over();) add();
    });
    works.push_back([&, seed] {
      Samples sample(replay, seed);
      for (const Until end(g_seconds); !end.is_over();) sample();
    });
  }
  in_threads(works);
  require(replay.buffer.rows().size() == Replay::kCapacity, "rows are missing");
}

void replay_of_killed_processes(bool evicts) {
  Replay replay(evicts);
  std::unique_ptr<Adds> add;  // made in each process: a writer's number is its process's
  std::unique_ptr<Samples> sample;
  const Work adds = [&] {
    if (!add) add = std::make_unique<Adds>(replay, 1);
    (*add)();
  };
  const Work samples = [&] {
    if (!sample) sample = std::make_unique<Samples>(replay, 1);
    (*sample)();
  };
  in_killed_processes({adds, adds, samples}, [&] {
    Adds(replay, 9)();
    Samples check(replay, 9);
    check();
    check();
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) g_seconds = std::atof(arguments[1]);
  const std::pair<const char*, Work> parts[] = {
      {"ring, threads", ring_between_threads},
      {"ring, killed processes", ring_of_killed_processes},
      {"slot table, threads", slots_between_threads},
      {"weights block, threads", weights_between_threads},
      {"weights block, killed processes", weights_of_killed_processes},
      {"sum tree and robust mutex, threads", tree_between_threads},
      {"sum tree and robust mutex, killed processes", tree_of_killed_processes},
      {"replay buffer, threads", [] { replay_between_threads(false); }},
      {"replay buffer, killed processes", [] { replay_of_killed_processes(false); }},
      {"replay buffer with eviction, threads", [] { replay_between_threads(true); }},
      {"replay buffer with eviction, killed processes", [] { replay_of_killed_processes(true); }},
  };
  for (const auto& [name, work] : parts) {
    std::printf("%s\n", name);
    std::fflush(stdout);
    work();
  }
  return 0;
}
