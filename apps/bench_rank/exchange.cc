// A model's gradients, submitted as backward would: through a plan (path "arena") and as named operations on ordinary
// memory, one after the other without waiting (path "tensor").
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "apps/bench_rank/benches.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::bench_rank {

namespace {

using engine::DataType;
using engine::PlanTensor;
using engine::ReduceOperation;
using engine::Runtime;

constexpr std::uint64_t kLongestListBytes = std::uint64_t{16} << 20;

std::size_t element_count(const engine::Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, [](std::size_t product, std::int64_t length) {
    return product * static_cast<std::size_t>(length);
  });
}

std::size_t total_bytes(const std::vector<PlanTensor>& tensors) {
  std::size_t bytes = 0;
  for (const PlanTensor& tensor : tensors) bytes += element_count(tensor.shape) * sizeof(float);
  return bytes;
}

/// Writes over what the caches hold, so that every exchange finds its gradients in memory.
class CacheFlush {
 public:
  explicit CacheFlush(const Effort& effort) : memory_(effort.rotation_bytes) {}
  void operator()() { std::ranges::fill(memory_, ++value_); }

 private:
  std::vector<char> memory_;
  char value_ = 0;
};

/// Median microseconds of `step`, which all ranks begin together.
template <typename Step>
double measure_steps(Runtime& runtime, const Effort& effort, const Step& step) {
  CacheFlush flush(effort);
  const auto once = [&] {
    flush();
    meet(runtime);
    const auto start = SteadyClock::now();
    step();
    return microseconds_since(start);
  };
  static_cast<void>(once());
  const int rounds = agreed_rounds(runtime, once(), effort);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(once());
  return median(std::move(times));
}

double measure_plan(Runtime& runtime, const std::vector<PlanTensor>& tensors, const Effort& effort) {
  const auto plan = runtime.engine().make_plan(tensors, {.name = "exchange", .operation = ReduceOperation::kSum});
  const auto values = [&](std::size_t i) {
    return std::span(reinterpret_cast<float*>(plan->tensor(i).data()), element_count(tensors[i].shape));
  };
  const auto fill = [&](float value) {
    for (std::size_t i = 0; i < tensors.size(); ++i) std::ranges::fill(values(i), value);
  };
  const auto step = [&] {
    for (std::size_t i = 0; i < tensors.size(); ++i) plan->mark_ready(i);
    plan->finish_step();
  };
  fill(static_cast<float>(runtime.rank() + 1));
  step();
  for (std::size_t i = 0; i < tensors.size(); ++i) require_sum(runtime, values(i), tensors[i].name);
  fill(0.0F);  // Whose sums stay finite however many rounds there are.
  return measure_steps(runtime, effort, step);
}

double measure_operations(Runtime& runtime, const std::vector<PlanTensor>& tensors, const Effort& effort) {
  std::vector<std::vector<float>> values;
  for (const PlanTensor& tensor : tensors) values.emplace_back(element_count(tensor.shape));
  const auto fill = [&](float value) {
    for (std::vector<float>& tensor : values) std::ranges::fill(tensor, value);
  };
  const auto step = [&] {
    std::vector<engine::Handle> handles;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      handles.push_back(runtime.engine().submit(sum_of(tensors[i].name, values[i])));
    }
    for (engine::Handle& handle : handles) static_cast<void>(handle.wait());
  };
  fill(static_cast<float>(runtime.rank() + 1));
  step();
  for (std::size_t i = 0; i < tensors.size(); ++i) require_sum(runtime, values[i], tensors[i].name);
  fill(0.0F);
  return measure_steps(runtime, effort, step);
}

}  // namespace

std::vector<PlanTensor> read_tensor_list(const std::filesystem::path& path) {
  const Bytes text = read_file(path, kLongestListBytes);
  std::vector<PlanTensor> tensors;
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(as_text(text))) {
      tensors.push_back(
          {entry.at("name").get<std::string>(), DataType::kFloat32, entry.at("shape").get<engine::Shape>()});
      const auto& shape = tensors.back().shape;
      if (std::ranges::any_of(shape, [](std::int64_t length) { return length < 1; })) {
        throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: the shape of '{}' is not made of positive numbers",
                                                             path.string(), tensors.back().name));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: a list of {{\"name\", \"shape\"}} is needed: {}", path.string(), error.what()));
  }
  if (tensors.empty()) throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: no tensors", path.string()));
  return tensors;
}

nlohmann::json measure_exchange(Runtime& runtime, const std::vector<PlanTensor>& tensors, Paths paths,
                                const Effort& effort) {
  nlohmann::json result = {{"bytes", total_bytes(tensors)}};
  if (paths.arena) result["arena"] = measure_plan(runtime, tensors, effort);
  if (paths.tensor) result["tensor"] = measure_operations(runtime, tensors, effort);
  return result;
}

}  // namespace gyre::bench_rank
