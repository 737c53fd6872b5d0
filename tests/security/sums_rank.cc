// A rank that knows every sum beforehand: what connections that an attacker holds may do to a job is decided by whether
// it says "right", or one sentence, and by how long it takes. See attacker_test.py.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gyre/engine/runtime.h"

namespace {

using namespace gyre;

constexpr int kWrong = 4;
constexpr int kFailed = 3;

/// Whole numbers, so that sums in float32 are exact in every order.
float value(std::size_t element, int rank, int operation) {
  return static_cast<float>((element * 7 + static_cast<std::size_t>(rank) * 13 + static_cast<std::size_t>(operation)) %
                            1009);
}

/// Nothing, or the first element that is wrong.
std::string sum_and_check(engine::Runtime& runtime, std::size_t elements, int operation) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = value(i, runtime.rank(), operation);
  engine::Request request;
  request.name = fmt::format("sum {}", operation);
  request.signature.kind = engine::OperationKind::kAllreduce;
  request.signature.type = engine::DataType::kFloat32;
  request.signature.shape = {static_cast<std::int64_t>(elements)};
  request.input = std::as_bytes(std::span(values));
  request.output = std::as_writable_bytes(std::span(values));
  runtime.engine().submit(std::move(request)).wait();
  for (std::size_t i = 0; i < elements; ++i) {
    float expected = 0;
    for (int rank = 0; rank < runtime.size(); ++rank) expected += value(i, rank, operation);
    if (values[i] != expected) {
      return fmt::format("element {} of {} in sum {} is {}, not {}", i, elements, operation, values[i], expected);
    }
  }
  return {};
}

int run(unsigned seed, int operations) {
  const auto runtime = engine::Runtime::start_from_environment();
  std::mt19937 random(seed);  // The same sizes on all ranks.
  for (int operation = 0; operation < operations; ++operation) {
    const std::size_t most = std::size_t{1} << (random() % 20);
    if (const std::string wrong = sum_and_check(*runtime, 1 + random() % most, operation); !wrong.empty()) {
      fmt::print("WRONG {}\n", wrong);
      return kWrong;
    }
  }
  runtime->shutdown();
  fmt::print("right\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return run(static_cast<unsigned>(std::atoi(argv[1])), std::atoi(argv[2]));
  } catch (const std::exception& error) {
    fmt::print("told: {}\n", error.what());
    return kFailed;
  }
}
