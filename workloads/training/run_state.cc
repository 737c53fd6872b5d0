#include "workloads/training/run_state.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "gyre/base/error.h"

namespace gyre::training {
namespace {

constexpr double kMostProgress = 0x1p52;  // Counts up to here are exact.

double parse_number(const std::string& text, const std::string& name) {
  double value = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = problem == std::errc() && end == text.data() + text.size();
  if (!whole || !(value >= 0 && value <= kMostProgress)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} is '{}'; a number from 0 to 2^52 is needed", name, text));
  }
  return value;
}

}  // namespace

RunState::RunState(RunOptions options, train::GradientExchange& exchange, train::NamedTensors network,
                   train::NamedTensors optimizer)
    : options_(std::move(options)), exchange_(exchange), state_(std::move(network)), optimizer_(std::move(optimizer)) {
  state_.insert(state_.end(), optimizer_.begin(), optimizer_.end());
}

void RunState::start_or_resume(Progress& progress) {
  exchange_state_ = exchange_.state();
  const bool leader = exchange_.rank() == 0;
  std::vector<double> values(progress.size() + 1, 0.0);  // The last one: 1 + the number of the checkpoint.
  if (leader) {
    checkpoints_.emplace(options_.checkpoint_dir, options_.keep_checkpoints);
    if (options_.resume) {
      if (const auto found = checkpoints_->find_latest_valid()) {
        load(*found, progress);
        values.back() = static_cast<double>(found->number) + 1;
      }
    } else if (!checkpoints_->numbers().empty()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{} contains the checkpoints of an earlier run: continue it "
                                                           "with --resume, or choose another folder with --model-dir",
                                                           options_.checkpoint_dir.string()));
    }
    tensorboard_ = std::make_unique<data::TensorboardWriter>(options_.tensorboard_dir);
  } else if (!exchange_.replicas_are_equal()) {
    const auto folder = options_.checkpoint_dir / fmt::format("worker-{}", exchange_.rank());
    checkpoints_.emplace(folder, options_.keep_checkpoints);
  }
  for (std::size_t i = 0; leader && i < progress.size(); ++i) values[i] = progress[i].second;
  exchange_.sum(values);
  for (std::size_t i = 0; i < progress.size(); ++i) progress[i].second = values[i];
  exchange_.broadcast(state_);
  exchange_.broadcast(exchange_state_);
  if (!leader && checkpoints_ && values.back() > 0) load_own(static_cast<std::uint64_t>(values.back()) - 1);
}

void RunState::load_own(std::uint64_t number) {
  const std::filesystem::path path = checkpoints_->path_of(number);
  try {
    train::restore_from_checkpoint(train::load_checkpoint(path), optimizer_);
  } catch (const Error& error) {
    fmt::print(stderr, "{}: worker {} continues with the optimizer of worker 0: {}\n", options_.program,
               exchange_.rank(), error.what());
  }
}

void RunState::load(const train::CheckpointFolder::Found& found, Progress& progress) const {
  const train::Checkpoint& saved = found.checkpoint;
  const std::string where = found.path.string();
  for (const std::string& reason : found.rejected) {
    fmt::print(stderr, "{}: passed over {}\n", options_.program, reason);
  }
  try {
    train::restore_from_checkpoint(saved, state_);
    if (exchange_state_.empty() || saved.has_tensor(exchange_state_.front().name)) {
      train::restore_from_checkpoint(saved, exchange_state_);
    } else {
      fmt::print(stderr, "{}: the checkpoint has no momentum of --consistency; it starts anew\n", options_.program);
    }
    for (auto& [name, value] : progress) value = parse_number(saved.value(name), name);
  } catch (Error& error) {
    throw error.add_context(fmt::format("cannot resume from {}", where));
  }
  if (options_.talks) {
    std::string at;
    for (const auto& [name, value] : progress) {
      if (name.find('/') == std::string::npos) at += fmt::format("{}{} {}", at.empty() ? "" : ", ", name, value);
    }
    fmt::print("resumed after {} from {}\n", at, where);
    std::fflush(stdout);
  }
  for (const auto& [name, value] : options_.recipe) {
    const auto before = saved.metadata.find(name);
    if (before == saved.metadata.end() || before->second == value) continue;
    fmt::print(stderr, "{}: {} was '{}' before the checkpoint and is '{}' now\n", options_.program, name,
               before->second, value);
  }
}

void RunState::save(std::uint64_t number, const Progress& progress) const {
  if (!checkpoints_) return;
  train::Checkpoint checkpoint;
  checkpoint.metadata = options_.recipe;
  checkpoint.metadata["program"] = fmt::format("{} {}", options_.program, GYRE_VERSION);
  for (const auto& [name, value] : progress) checkpoint.metadata[name] = fmt::format("{}", value);
  const bool leader = exchange_.rank() == 0;
  train::add_to_checkpoint(checkpoint, leader ? state_ : optimizer_);
  if (leader) train::add_to_checkpoint(checkpoint, exchange_state_);
  checkpoints_->save(number, checkpoint);
}

void RunState::add_scalars(std::uint64_t step, std::span<const data::Scalar> scalars) {
  if (tensorboard_) tensorboard_->add_scalars(static_cast<std::int64_t>(step), scalars);
}

}  // namespace gyre::training
