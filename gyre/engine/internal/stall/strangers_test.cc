// A deadlock is proven only if no thread can help. So a thread of the program must never be taken for one of a
// library's pool; that the pools of torch and NumPy are recognised is tested in tests/python/strangers_test.py.
#include "gyre/engine/internal/stall/strangers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <random>
#include <set>
#include <thread>

#include "gyre/base/thread.h"
#include "gyre/engine/internal/stall/rank_state.h"

namespace gyre::engine::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uintptr_t kLibc = 0x1000;
constexpr std::uintptr_t kGomp = 0x2000;
constexpr std::uintptr_t kTorch = 0x3000;
constexpr std::uintptr_t kProgram = 0x4000;
constexpr std::uintptr_t kNoFile = 0x5000;
constexpr std::uintptr_t kBlas = 0x6000;
constexpr std::uintptr_t kCxx = 0x7000;
constexpr std::uintptr_t kFlow = 0x8000;
constexpr std::uintptr_t kFlowOps = 0x9000;
constexpr std::uintptr_t kCuda = 0xa000;
constexpr std::uintptr_t kData = 0x100000;

const std::vector<CodeRange>& code() {
  static const std::vector<CodeRange> ranges = {
      {kLibc, kLibc + 0x1000, "libc.so.6"},
      {kGomp, kGomp + 0x1000, "libgomp-a34b.so.1"},
      {kTorch, kTorch + 0x1000, "libtorch_cpu.so"},
      {kProgram, kProgram + 0x1000, "python3.11"},
      {kNoFile, kNoFile + 0x1000, ""},
      {kBlas, kBlas + 0x1000, "libscipy_openblas64_-32a4.so"},
      {kCxx, kCxx + 0x1000, "libstdc++.so.6.0.30"},
      {kFlow, kFlow + 0x1000, "libtensorflow_framework.so.2"},
      {kFlowOps, kFlowOps + 0x1000, "libtensorflow_cc.so.2"},
      {kCuda, kCuda + 0x1000, "libcuda.so.535.104.05"},
  };
  return ranges;
}

/// Where a function begins, no call comes before.
bool is_call(std::uintptr_t address) { return address % 0x100 != 0; }

TEST(StrangersTest, a_thread_is_idle_in_a_pool_only_if_all_its_code_is_the_pools) {
  struct Row {
    const char* what;
    SleepingThread thread;
    bool idle;
  };
  const std::vector<Row> table = {
      {"OpenMP at its dock", {"python", false, kGomp + 1, {kData, kGomp + 9, kLibc + 5, 0}}, true},
      {"OpenBLAS in a wait of the C library", {"python", false, kLibc + 1, {kBlas + 9, kLibc + 5}}, true},
      {"the same, with the function of its last work", {"python", false, kGomp + 1, {kTorch + 0x100, kLibc + 5}}, true},
      {"inside a parallel region of the program",
       {"python", false, kGomp + 1, {kGomp + 9, kProgram + 7, kLibc + 5}},
       false},
      {"in torch's code", {"python", false, kLibc + 1, {kTorch + 9, kLibc + 5}}, false},
      {"in code of no file", {"python", false, kGomp + 1, {kNoFile + 9, kLibc + 5}}, false},
      {"the C library's own, for timers", {"python", false, kLibc + 1, {kLibc + 5}}, false},
      {"of two pools", {"python", false, kGomp + 1, {kBlas + 9, kLibc + 5}}, false},
      {"autograd's, idle", {"pt_autograd_0", false, kLibc + 1, {kTorch + 9, kLibc + 5}}, true},
      {"autograd's, in a hook", {"pt_autograd_0", false, kLibc + 1, {kTorch + 9, kProgram + 7, kTorch + 1}}, false},
      {"a program's that has such a name", {"pt_autograd_0", false, kLibc + 1, {kProgram + 7, kLibc + 5}}, false},
      {"pthreadpool's", {"python", true, kLibc + 1, {kTorch + 9, kLibc + 5}}, true},
      {"the same in another call", {"python", false, kLibc + 1, {kTorch + 9, kLibc + 5}}, false},
      {"torch's in a wait of the C library", {"python", true, kLibc + 1, {kLibc + 9, kTorch + 9, kLibc + 5}}, false},
      {"in torch's, which nothing called", {"python", true, kTorch + 1, {kData}}, false},
      {"deeper in torch's", {"python", true, kLibc + 1, {kTorch + 9, kTorch + 7, kLibc + 5}}, false},
      {"TensorFlow's, idle", {"tf_Compute", true, kLibc + 1, {kCxx + 9, kFlow + 9, kFlowOps + 9, kLibc + 5}}, true},
      {"TensorFlow's, in a Python function", {"tf_Compute", true, kLibc + 1, {kProgram + 7, kFlowOps + 9}}, false},
      {"the CUDA driver's", {"cuda-EvtHandlr", false, kLibc + 1, {kCuda + 9, kLibc + 5}}, true},
      {"the same, in a function of the program's", {"cuda0000", false, kLibc + 1, {kProgram + 7, kCuda + 9}}, false},
      {"a program's that waits for the driver", {"python", false, kLibc + 1, {kCuda + 9, kLibc + 5}}, false},
      {"nowhere", {"python", false, kData, {kData}}, false},
      {"with bits above the address",
       {"python", false, kGomp + 1, {(std::uintptr_t{0xab} << 56) | (kProgram + 7)}},
       false},
  };
  for (const Row& row : table) {
    EXPECT_EQ(is_idle_in_pool(row.thread, code(), is_call), row.idle) << row.what;
  }
}

// Against the plain statement of the rule, on random stacks.
TEST(StrangersTest, no_stack_that_returns_to_the_program_is_idle) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto pick = [&](std::uintptr_t low, std::uintptr_t high) {
    return std::uniform_int_distribution<std::uintptr_t>(low, high)(random);
  };
  for (int round = 0; round < 20'000; ++round) {
    SleepingThread thread{"python", false, pick(kLibc, kGomp + 0xfff), {}};
    std::set<std::uintptr_t> seen = {thread.instruction / 0x1000};
    for (std::uintptr_t left = pick(0, 6); left > 0; --left) {
      const std::uintptr_t word = pick(0, 9) < 8 ? pick(kLibc, kGomp + 0xfff) : pick(0, kBlas + 0x1fff);
      thread.stack.push_back(word);
      if (word >= kLibc && word < kBlas + 0x1000 && is_call(word)) seen.insert(word / 0x1000);
    }
    seen.erase(kLibc / 0x1000);
    const bool in_one_pool = seen.size() == 1 && (seen.contains(kGomp / 0x1000) || seen.contains(kBlas / 0x1000));
    ASSERT_EQ(is_idle_in_pool(thread, code(), is_call), in_one_pool) << "seed " << seed;
  }
}

#if defined(__x86_64__)
TEST(StrangersTest, tells_calls_apart) {
  const auto ends_with_call = [](std::vector<unsigned char> bytes) {
    return may_end_with_call(std::as_bytes(std::span(bytes)));
  };
  EXPECT_TRUE(ends_with_call({0x90, 0x90, 0xE8, 1, 2, 3, 4}));              // call there
  EXPECT_TRUE(ends_with_call({0x90, 0x90, 0x90, 0x90, 0x90, 0xFF, 0xD0}));  // call *%rax
  EXPECT_TRUE(ends_with_call({0x90, 0xFF, 0x15, 1, 2, 3, 4}));              // call *there(%rip)
  EXPECT_TRUE(ends_with_call({0x90, 0x90, 0x90, 0x90, 0xFF, 0x53, 8}));     // call *8(%rbx)
  EXPECT_FALSE(ends_with_call({0x66, 0x0F, 0x1F, 0x44, 0, 0, 0xC3}));       // Padding and a return.
}
#endif

/// Started and alive as long as the object lives.
class Sleeper {
 public:
  explicit Sleeper(bool is_own) {
    std::latch started(1);
    const auto sleep = [this, &started] {
      number_ = ::gettid();
      ::pthread_setname_np(::pthread_self(), "saver");
      started.count_down();
      end_.wait();
    };
    thread_ = is_own ? start_thread("a test", sleep) : std::thread(sleep);
    started.wait();
  }
  ~Sleeper() {
    end_.count_down();
    thread_.join();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t number() const { return number_; }

 private:
  std::latch end_{1};
  pid_t number_ = 0;
  std::thread thread_;
};

TEST(StrangersTest, finds_the_programs_threads_and_leaves_out_ours_and_those_that_are_known) {
  const pid_t self = ::gettid();
  {
    const Sleeper own(true);
    EXPECT_THAT(find_strangers({self}, {}), IsEmpty());
    const Sleeper programs(false);
    EXPECT_THAT(find_strangers({self}, {}), ElementsAre(HasSubstr("('saver')")));
    EXPECT_THAT(find_strangers({self, programs.number()}, {}), IsEmpty());
    EXPECT_THAT(find_strangers({self}, {{programs.number(), "'s' at train.py:3", false}}),
                ElementsAre("thread 's' at train.py:3"));
    EXPECT_THAT(find_strangers({self}, {{programs.number(), "'tqdm'", true}}), IsEmpty());
    EXPECT_THAT(find_strangers({self, programs.number()}, {{0, "a timer", false}}), ElementsAre("a timer"));
    EXPECT_THAT(find_strangers({}, {}).size(), 2);
  }
  EXPECT_THAT(find_strangers({self}, {}), IsEmpty());
}

/// Starts and joins threads, one after the other.
class Parent {
 public:
  explicit Parent(std::function<std::thread()> start)
      : thread_([this, start = std::move(start)] {
          number_ = ::gettid();
          known_.count_down();
          while (!stop_) start().join();
        }) {
    known_.wait();
  }
  ~Parent() {
    stop_ = true;
    thread_.join();
  }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;
  pid_t number() const { return number_; }

 private:
  std::atomic<bool> stop_{false};
  std::latch known_{1};
  pid_t number_ = 0;
  std::thread thread_;
};

TEST(StrangersTest, names_no_thread_that_ended_while_it_looked) {
  const Parent parent([] { return std::thread([] {}); });
  for (int look = 0; look < 500; ++look) {
    for (const std::string& stranger : find_strangers({::gettid(), parent.number()}, {})) {
      if (stranger.ends_with("('')")) ADD_FAILURE() << stranger;
    }
  }
}

TEST(StrangersTest, takes_no_thread_of_ours_for_the_programs_while_it_starts_or_ends) {
  const Parent parent(
      [] { return start_thread("a test", [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }); });
  for (int look = 0; look < 500; ++look) {
    ASSERT_THAT(find_strangers({::gettid(), parent.number()}, {}), IsEmpty()) << "look " << look;
  }
}

TEST(StrangersTest, counts_those_that_there_are_no_words_for) {
  const std::vector<ProgramThread> many(9, {0, "one", false});
  const auto strangers = find_strangers({::gettid()}, many);
  ASSERT_EQ(strangers.size(), RankState::kMostStrangers);
  EXPECT_EQ(strangers.back(), "6 more");
}

}  // namespace
}  // namespace gyre::engine::internal
