// Averages a vector over the ranks of a job: `gyre run -n 4 -- build/release/examples/02_average`
#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "gyre/engine/runtime.h"

int main() {
  auto runtime = gyre::engine::Runtime::start_from_environment();  // what `gyre run` handed down
  std::vector<float> values(1024, static_cast<float>(runtime->rank()));

  gyre::engine::Request request;
  request.name = "values";
  request.signature.kind = gyre::engine::OperationKind::kAllreduce;
  request.signature.type = gyre::engine::DataType::kFloat32;
  request.signature.shape = {1024};
  request.signature.operation = gyre::engine::ReduceOperation::kAverage;
  request.output = std::as_writable_bytes(std::span(values));
  request.input = request.output;  // in place
  runtime->engine().run(std::move(request));

  fmt::print("rank {} of {}: {}\n", runtime->rank(), runtime->size(), values[0]);
}
