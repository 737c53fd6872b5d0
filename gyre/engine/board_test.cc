// Which way a synchronous call takes (the board, a mailbox, the coordinator) is a matter of luck, size and speed: these
// tests compare the bits of all ways, and let several threads of each rank fight for the board.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/floating_point.h"
#include "gyre/base/random.h"
#include "gyre/engine/engine.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

Request request_for(const std::string& name, DataType type, std::vector<std::byte>& memory) {
  Request request;
  request.name = name;
  request.signature = {.kind = OperationKind::kAllreduce,
                       .type = type,
                       .shape = {static_cast<std::int64_t>(memory.size() / collectives::size_of(type))}};
  request.input = memory;
  request.output = memory;
  return request;
}

std::vector<std::byte> random_bytes(std::size_t size, Random random) {
  std::vector<std::byte> bytes(size);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random.below(120));  // No NaN, whose payload is free.
  return bytes;
}

/// Sizes on both sides of what fits on the board.
constexpr std::array<std::size_t, 6> kSizesBytes{0, 8, 1016, 1024, 1032, 5000};

class BoardTest : public testing::TestWithParam<int> {};

TEST_P(BoardTest, small_and_large_synchronous_calls_have_the_bits_of_asynchronous_ones) {
  constexpr std::uint64_t kSeed = 21;
  struct Way {
    DataType type;
    ReduceOperation operation;
    double prescale, postscale;
  };
  constexpr std::array<Way, 7> kWays{{{DataType::kFloat32, ReduceOperation::kSum, 1.0, 1.0},
                                      {DataType::kFloat32, ReduceOperation::kAverage, 0.3, 1.7},
                                      {DataType::kBfloat16, ReduceOperation::kAverage, 1.0, 1.0},
                                      {DataType::kFloat64, ReduceOperation::kProduct, -0.5, 2.0},
                                      {DataType::kInt32, ReduceOperation::kAverage, 1.0, 1.0},
                                      {DataType::kInt8, ReduceOperation::kSum, 0.5, 3.0},
                                      {DataType::kFloat16, ReduceOperation::kMin, -1.0, 1.0}}};
  run_ranks(GetParam(), [&](Runtime& runtime) {
    for (std::size_t way = 0; way < kWays.size(); ++way) {
      for (const std::size_t size : kSizesBytes) {
        const std::string name = std::to_string(way) + "." + std::to_string(size);
        SCOPED_TRACE(name);
        const auto own = random_bytes(size, Random(kSeed + way, static_cast<std::uint64_t>(runtime.rank())));
        std::array<std::vector<std::byte>, 2> results{own, own};
        std::array<Request, 2> requests{request_for(name, kWays[way].type, results[0]),
                                        request_for(name + ".async", kWays[way].type, results[1])};
        for (Request& request : requests) {
          request.signature.operation = kWays[way].operation;
          request.signature.prescale = kWays[way].prescale;
          request.signature.postscale = kWays[way].postscale;
        }
        static_cast<void>(runtime.engine().run(requests[0]));
        runtime.engine().submit(requests[1]).wait();
        ASSERT_EQ(results[0], results[1]);
      }
    }
  });
}

#if defined(__x86_64__)
TEST_P(BoardTest, a_calls_bits_do_not_depend_on_the_floating_point_state_of_the_callers_thread) {
  // A call runs on the caller's thread or on the engine's, as timing has it. One rank flushes denormals, as after
  // torch.set_flush_denormal(True).
  constexpr unsigned kFlushing = 0x8040;
  constexpr float kDenormal = 1e-40F;
  run_ranks(GetParam(), [&](Runtime& runtime) {
    const unsigned former = _mm_getcsr();
    if (runtime.rank() == 0) _mm_setcsr(former | kFlushing);
    for (const std::size_t count : {std::size_t{1}, std::size_t{5000}}) {
      const std::string name = "flushed." + std::to_string(count);
      for (const bool asynchronous : {false, true}) {
        std::vector<float> values(count, kDenormal);
        Request request;
        request.name = name + (asynchronous ? ".async" : "");
        request.signature = {.kind = OperationKind::kAllreduce,
                             .type = DataType::kFloat32,
                             .shape = {static_cast<std::int64_t>(count)},
                             .operation = ReduceOperation::kMax};
        request.input = request.output = std::as_writable_bytes(std::span(values));
        if (asynchronous) {
          runtime.engine().submit(request).wait();
        } else {
          static_cast<void>(runtime.engine().run(request));
        }
        const unsigned during = _mm_getcsr();
        _mm_setcsr(former);  // Comparisons flush too.
        EXPECT_EQ(std::count(values.begin(), values.end(), kDenormal), static_cast<std::ptrdiff_t>(count)) << name;
        _mm_setcsr(during);
      }
    }
    EXPECT_EQ(_mm_getcsr() & kFlushing, runtime.rank() == 0 ? kFlushing : 0U);
    _mm_setcsr(former);
  });
}
#endif

TEST_P(BoardTest, a_broadcast_leaves_the_roots_memory_and_reaches_all_others) {
  run_ranks(GetParam(), [](Runtime& runtime) {
    for (const std::size_t size : kSizesBytes) {
      for (int root = 0; root < runtime.size(); ++root) {
        const auto roots = random_bytes(size, Random(size, static_cast<std::uint64_t>(root)));
        auto memory = runtime.rank() == root ? roots : std::vector<std::byte>(size);
        Request request = request_for("b" + std::to_string(size), DataType::kUint8, memory);
        request.signature.kind = OperationKind::kBroadcast;
        request.signature.root = root;
        static_cast<void>(runtime.engine().run(request));
        ASSERT_EQ(memory, roots) << size << " bytes from rank " << root;
      }
    }
  });
}

/// Of operations that have results of their own: the board, its lane and the coordinator must agree about all of it.
void expect_equal_results(Engine& engine, const Request& request) {
  for (const bool with_memory : {true, false}) {
    SCOPED_TRACE(request.name + (with_memory ? ", into the caller's memory" : ""));
    Request ordered = request;
    ordered.name += ".async";
    const Handle handle = engine.submit(ordered);
    handle.wait();
    const Result expected = handle.take_result();
    std::vector<std::byte> memory(expected.bytes.size());
    Request met = request;
    if (with_memory) met.output = memory;
    const Result result = engine.run(met);
    ASSERT_EQ(result.shape, expected.shape);
    ASSERT_EQ(result.received_splits, expected.received_splits);
    ASSERT_EQ(with_memory ? memory : result.bytes, expected.bytes);
  }
}

TEST_P(BoardTest, gathering_scattering_and_exchanging_give_what_the_coordinator_gives) {
  run_ranks(GetParam(), [&](Runtime& runtime) {
    const int size = runtime.size();
    const auto own = static_cast<std::uint64_t>(runtime.rank());
    for (const std::int64_t rows : {0, 1, 5, 60, 40'000}) {
      Request request;
      request.signature = {.type = DataType::kInt16, .shape = {rows * size, 3}};
      const auto input = random_bytes(static_cast<std::size_t>(rows * size) * 6, Random(5, own));
      request.input = input;
      for (const auto kind : {OperationKind::kAllgather, OperationKind::kReduceScatter, OperationKind::kAllToAll}) {
        request.name = std::string(operation_name(kind)) + std::to_string(rows);
        request.signature.kind = kind;
        expect_equal_results(runtime.engine(), request);
      }
    }
  });
}

TEST_P(BoardTest, sizes_that_differ_between_ranks_are_left_to_the_coordinator) {
  run_ranks(GetParam(), [&](Runtime& runtime) {
    const auto size = static_cast<std::size_t>(runtime.size());
    const auto rank = static_cast<std::size_t>(runtime.rank());
    for (int round = 0; round < 3; ++round) {
      // A row more for each rank; of an all-to-all, from rank 0 only.
      const auto input = random_bytes(size * (rank + 1), Random(6, rank));
      Request request;
      request.input = input;
      request.signature.shape = {static_cast<std::int64_t>(input.size())};
      request.name = "gather" + std::to_string(round);
      request.signature.kind = OperationKind::kAllgather;
      expect_equal_results(runtime.engine(), request);
      request.name = "uneven" + std::to_string(round);
      request.signature.kind = OperationKind::kAllToAll;
      request.signature.splits.assign(size, static_cast<std::int64_t>(rank + 1));
      if (rank == 0) {
        request.signature.splits[0] = 0;
        request.signature.splits[size - 1] = 2;
      }
      expect_equal_results(runtime.engine(), request);
    }
  });
}

TEST_P(BoardTest, an_allgather_may_be_in_place_on_every_way) {
  run_ranks(GetParam(), [](Runtime& runtime) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{5000}, std::size_t{700'000}}) {
      for (const bool meets : {true, false}) {
        std::vector<std::byte> expected;
        for (int rank = 0; rank < runtime.size(); ++rank) {
          const auto part = random_bytes(bytes, Random(7, static_cast<std::uint64_t>(rank)));
          expected.insert(expected.end(), part.begin(), part.end());
        }
        std::vector<std::byte> memory(expected.size());
        const std::size_t begin = static_cast<std::size_t>(runtime.rank()) * bytes;
        std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(begin), bytes,
                    memory.begin() + static_cast<std::ptrdiff_t>(begin));
        Request request;
        request.name = "in place " + std::to_string(bytes) + (meets ? " at once" : "");
        request.signature = {.kind = OperationKind::kAllgather, .shape = {static_cast<std::int64_t>(bytes)}};
        request.input = std::span(memory).subspan(begin, bytes);
        request.output = memory;
        const Handle handle = meets ? runtime.engine().run_or_submit(request) : runtime.engine().submit(request);
        handle.wait();
        ASSERT_TRUE(handle.take_result().bytes.empty()) << "the engine used memory of its own";
        ASSERT_EQ(memory, expected) << request.name;
      }
    }
  });
}

TEST_P(BoardTest, threads_that_fight_for_the_board_get_their_own_sums) {
  constexpr int kThreads = 3;
  constexpr int kCalls = 300;
  run_ranks(GetParam(), [](Runtime& runtime) {
    std::atomic<int> wrong = 0;
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&runtime, &wrong, thread] {
        for (int call = 0; call < kCalls; ++call) {
          std::vector<std::byte> memory(16, static_cast<std::byte>(thread + call % 20));
          // Some names come again, some never do.
          const std::string suffix = call % 2 == 0 ? "" : "." + std::to_string(call);
          static_cast<void>(
              runtime.engine().run(request_for("thread" + std::to_string(thread) + suffix, DataType::kUint8, memory)));
          const auto sum = static_cast<std::byte>((thread + call % 20) * runtime.size());
          if (memory != std::vector<std::byte>(16, sum)) ++wrong;
        }
      });
    }
    threads.clear();
    ASSERT_EQ(wrong, 0);
  });
}

TEST_P(BoardTest, nobody_passes_a_barrier_before_all_have_come) {
  std::atomic<int> come = 0;
  run_ranks(GetParam(), [&](Runtime& runtime) {
    for (int round = 1; round <= 100; ++round) {
      ++come;
      Request barrier;
      barrier.name = "barrier";
      static_cast<void>(runtime.engine().run(barrier));
      ASSERT_GE(come, round * runtime.size());
    }
  });
}

TEST_P(BoardTest, a_trace_shows_every_call_with_the_same_phases) {
  const auto path = std::filesystem::temp_directory_path() / ("gyre_board_" + std::to_string(::getpid()) + ".json");
  run_ranks(GetParam(), [&](Runtime& runtime) {
    std::vector<std::byte> memory(16, std::byte{1});
    runtime.engine().start_timeline(path, true);
    for (int call = 0; call < 20; ++call) {
      // The ranks meet, or miss each other.
      static_cast<void>(runtime.engine().run(request_for("at_once." + std::to_string(call), DataType::kInt8, memory)));
    }
    runtime.engine().submit(request_for("in_order", DataType::kInt8, memory)).wait();
    runtime.engine().stop_timeline();
  });
  std::map<int, std::set<std::string>> phases;
  int cycles = 0;
  for (const auto& event : nlohmann::json::parse(as_text(read_file(path, 1 << 24)))) {
    const auto name = event.value("name", "");
    if (event.at("ph") == "B") phases[event.at("pid")].insert(name);
    cycles += name == "CYCLE_START" ? 1 : 0;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(phases.size(), 21U);
  for (const auto& [row, names] : phases) {
    EXPECT_TRUE(names.contains("NEGOTIATE_ALLREDUCE") && names.contains("ALLREDUCE")) << row;
  }
  EXPECT_GE(cycles, 21);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BoardTest, testing::Values(2, 3, 4));

}  // namespace
}  // namespace gyre::engine
