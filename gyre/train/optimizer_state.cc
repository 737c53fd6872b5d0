#include "gyre/train/optimizer_state.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::train {
namespace {

/// What the names of one broadcast's operations begin with, on all ranks.
std::string new_stem(engine::Runtime& runtime) {
  return fmt::format("optimizer_state.{}", runtime.engine().next_exchange());
}

/// Every rank's `own`, in the order of the ranks.
std::vector<std::string> gather_texts(engine::Runtime& runtime, const std::string& name, const std::string& own) {
  const std::string line = own + '\0';
  engine::Request request;
  request.name = name;
  request.transient = true;
  request.signature = {.kind = engine::OperationKind::kAllgather, .shape = {static_cast<std::int64_t>(line.size())}};
  request.input = as_bytes(line);
  const std::vector<std::byte> gathered = runtime.engine().run(std::move(request)).bytes;
  std::vector<std::string> texts(1);
  for (const std::byte byte : gathered) {
    if (byte == std::byte{0}) {
      texts.emplace_back();
    } else {
      texts.back().push_back(static_cast<char>(byte));
    }
  }
  texts.pop_back();
  return texts;
}

/// Error on every rank, with the first rank's problem, if one has any.
void agree(engine::Runtime& runtime, const std::string& name, const std::string& problem) {
  for (const std::string& text : gather_texts(runtime, name, problem)) {
    if (!text.empty()) throw Error(ErrorCode::kUnsupported, text);
  }
}

std::string class_of(const torch::optim::Optimizer& optimizer) {
  const char* mangled = typeid(optimizer).name();
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                         &std::free);
  return name ? name.get() : mangled;
}

std::string describe(const torch::optim::Optimizer& optimizer) {
  std::vector<std::size_t> sizes;
  for (const auto& group : optimizer.param_groups()) sizes.push_back(group.params().size());
  return fmt::format("a {} whose groups hold [{}] parameters", class_of(optimizer), fmt::join(sizes, ", "));
}

/// libtorch cannot save LBFGS's room for factors, whose tensors are undefined where the history is not full. Each step
/// computes them anew, and makes the room if there is none.
void empty_scratch(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) == nullptr) return;
  for (auto& [parameter, state] : optimizer.state()) {
    static_cast<torch::optim::LBFGSParamState&>(*state).al(std::nullopt);
  }
}

/// What save() writes. Throws what it throws.
std::string archive_of(torch::optim::Optimizer& optimizer) {
  empty_scratch(optimizer);
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  std::string saved = std::move(stream).str();
  if (optimizer.state().empty()) return saved;
  torch::serialize::InputArchive check;
  check.load_from(saved.data(), saved.size());
  if (check.keys().empty()) {
    throw Error(ErrorCode::kUnsupported, "its class keeps a state but does not implement save() and load()");
  }
  return saved;
}

void load(torch::optim::Optimizer& optimizer, const std::string& saved) {
  torch::serialize::InputArchive archive;
  archive.load_from(saved.data(), saved.size());
  if (archive.keys().empty()) return;  // A class of the program's that keeps nothing.
  // load() leaves state in place that the archive does not have.
  auto before = std::exchange(optimizer.state(), {});
  try {
    optimizer.load(archive);
  } catch (...) {
    optimizer.state() = std::move(before);
    throw;
  }
}

/// Rank 0's `text`.
void broadcast(engine::Runtime& runtime, const std::string& name, std::string& text) {
  auto size = static_cast<std::int64_t>(text.size());
  const auto send = [&](std::string_view part, std::span<std::byte> bytes) {
    engine::Request request;
    request.name = fmt::format("{}.{}", name, part);
    request.transient = true;
    request.signature = {.kind = engine::OperationKind::kBroadcast, .shape = {static_cast<std::int64_t>(bytes.size())}};
    request.input = bytes;
    request.output = bytes;
    static_cast<void>(runtime.engine().run(std::move(request)));
  };
  send("size", std::as_writable_bytes(std::span(&size, 1)));
  text.resize(static_cast<std::size_t>(size));
  send("archive", std::as_writable_bytes(std::span(text)));
}

}  // namespace

void check_same_optimizers(const torch::optim::Optimizer& optimizer, engine::Runtime& runtime) {
  const std::vector<std::string> described = gather_texts(runtime, new_stem(runtime), describe(optimizer));
  for (std::size_t rank = 1; rank < described.size(); ++rank) {
    if (described[rank] == described[0]) continue;
    throw Error(ErrorCode::kMismatch, fmt::format("broadcast of the optimizer's state: rank 0 has {}, rank {} has {}",
                                                  described[0], rank, described[rank]));
  }
}

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, engine::Runtime& runtime) {
  if (runtime.size() == 1) return;
  check_same_optimizers(optimizer, runtime);
  const std::string stem = new_stem(runtime);
  std::string saved;
  std::string problem;
  if (runtime.rank() == 0) {
    try {
      saved = archive_of(optimizer);
    } catch (const std::exception& error) {
      problem = fmt::format("rank 0 cannot save the state of its {}: {}", class_of(optimizer), error.what());
    }
  }
  agree(runtime, stem + ".saved", problem);
  broadcast(runtime, stem, saved);
  if (runtime.rank() != 0) {
    try {
      load(optimizer, saved);
    } catch (const std::exception& error) {
      problem = fmt::format("rank {} cannot load the state of rank 0's {}: {}", runtime.rank(), class_of(optimizer),
                            error.what());
    }
  }
  agree(runtime, stem + ".loaded", problem);
}

}  // namespace gyre::train
