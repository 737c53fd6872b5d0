#include "workloads/training/run_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/group/launched_metrics.h"
#include "workloads/training/report.h"

namespace gyre::training {
namespace {

constexpr std::string_view kBestPrefix = "best-";
constexpr std::string_view kBestSuffix = ".safetensors";
constexpr std::string_view kWorkerPrefix = "worker-";   // Of the folders of those that keep their own optimizers.
constexpr std::string_view kExchangePrefix = "outer.";  // Of the tensors of train::LocalSteps.
constexpr std::string_view kUnreportedFile = "unreported";
constexpr const char* kPosition = "here/position";

double parse_number(const std::string& text, const std::string& name) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = problem == std::errc() && end == text.data() + text.size();
  if (!whole || !std::isfinite(value)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} is '{}', which is not a finite number", name, text));
  }
  return value;
}

/// A count of epochs, steps or samples.
double parse_count(const std::string& text, const std::string& name) {
  constexpr double kMost = 0x1p52;  // Counts up to here are exact.
  const double value = parse_number(text, name);
  if (!(value >= 0 && value <= kMost)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} is '{}'; a number from 0 to 2^52 is needed", name, text));
  }
  return value;
}

template <typename Value>
bool all_finite(std::span<const std::byte> bytes) {
  for (; bytes.size() >= sizeof(Value); bytes = bytes.subspan(sizeof(Value))) {
    Value value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    if (!std::isfinite(value)) return false;
  }
  return true;
}

/// Earlier versions have saved runs that had diverged.
void require_finite(const train::Checkpoint& checkpoint) {
  for (const train::CheckpointTensor& tensor : checkpoint.tensors) {
    const bool finite = tensor.type == "float32"   ? all_finite<float>(tensor.bytes)
                        : tensor.type == "float64" ? all_finite<double>(tensor.bytes)
                                                   : true;
    if (!finite) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("tensor {} has values that are not finite: the run had diverged", tensor.name));
    }
  }
}

/// As a JSON list; empty where there are none. Names that are not UTF-8 are made so.
std::string list_of(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// "the global batch was 32 and is 64 now"; long values are not shown.
std::string describe_change(const Sameness& what, const std::string& before) {
  constexpr std::size_t kMostShown = 60;
  const bool shown = std::max(before.size(), what.value.size()) <= kMostShown;
  const std::string now = what.value.empty() ? "not known" : what.value;
  return shown ? fmt::format("{} was {} and is {} now", what.name, before, now) : fmt::format("{} changed", what.name);
}

/// What a run that was killed while it wrote has left of write_file_atomically(): files as large as checkpoints.
void remove_drafts(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours =
        name.starts_with("checkpoint-") || name.starts_with(kBestPrefix) || name.starts_with(kUnreportedFile);
    std::error_code ignored;
    if (ours && name.ends_with(".tmp")) std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

RunState::RunState(const RunOptions& options, RunIdentity identity, train::GradientExchange& exchange,
                   train::NamedTensors network, train::NamedTensors optimizer)
    : options_(options),
      identity_(std::move(identity)),
      exchange_(exchange),
      state_(std::move(network)),
      optimizer_(std::move(optimizer)) {
  state_.insert(state_.end(), optimizer_.begin(), optimizer_.end());
}

std::string RunOptions::places() const {
  return fmt::format("checkpoints go to {}, curves for TensorBoard to {}", checkpoints().string(), curves().string());
}

/// A new run would take what an earlier one has left for its own.
void RunState::refuse_leftovers() const {
  const std::string elsewhere = fmt::format("choose another folder with {}", options_.checkpoints_option());
  if (!checkpoints_->numbers().empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} contains the checkpoints of an earlier run: continue it with --resume, or {}",
                            options_.checkpoints().string(), elsewhere));
  }
  for (const auto& entry : std::filesystem::directory_iterator(options_.checkpoints())) {
    const std::string name = entry.path().filename().string();
    const bool best = name.starts_with(kBestPrefix) && name.ends_with(kBestSuffix);
    const bool of_worker = name.starts_with(kWorkerPrefix) && entry.is_directory() &&
                           !train::CheckpointFolder(entry.path(), 1).numbers().empty();
    if (!best && !of_worker) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is {} of an earlier run, whose checkpoints are gone: move it away, or {}",
                            entry.path().string(), best ? "the best epoch" : "the folder of a worker", elsewhere));
  }
}

void RunState::start_or_resume(Progress& progress) {
  exchange_state_ = exchange_.state();
  const bool leader = exchange_.rank() == 0;
  std::vector<double> values(progress.size() + 1, 0.0);  // The last one: 1 + the number of the checkpoint.
  if (leader) {
    lock_.emplace(options_.checkpoints(), options_.checkpoints_option());
    if (!lock_->remark().empty()) fmt::print(stderr, "{}: {}\n", options_.program, lock_->remark());
    checkpoints_.emplace(options_.checkpoints(), options_.keep_checkpoints);
    remove_drafts(options_.checkpoints());  // The lock says that nobody writes them.
    samples_ = identity_.samples();
    std::optional<train::CheckpointFolder::Found> found;
    if (options_.resume || options_.resume_changed) found = checkpoints_->find_latest_valid(require_finite);
    if (found) {
      load(*found, progress);
      values.back() = static_cast<double>(found->number) + 1;
    } else {
      refuse_leftovers();
      note_reported();
    }
    tensorboard_ = std::make_unique<data::TensorboardWriter>(options_.curves());
    metrics_ = group::metrics_logger_from_environment();
  } else if (!exchange_.replicas_are_equal()) {
    checkpoints_.emplace(own_folder(), options_.keep_checkpoints);
  }
  for (std::size_t i = 0; leader && i < progress.size(); ++i) values[i] = progress[i].second;
  exchange_.sum(values);
  if (!leader && checkpoints_) remove_drafts(own_folder());  // Rank 0 has the lock by now.
  for (std::size_t i = 0; i < progress.size(); ++i) progress[i].second = values[i];
  exchange_.broadcast(state_);
  exchange_.broadcast(exchange_state_);
  if (values.back() == 0) return;
  newest_ = static_cast<std::uint64_t>(values.back()) - 1;
  if (!leader && checkpoints_) load_own(*newest_);
}

std::filesystem::path RunState::own_folder() const {
  return options_.checkpoints() / fmt::format("{}{}", kWorkerPrefix, exchange_.rank());
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

std::vector<std::string> RunState::unused_tensors(const train::Checkpoint& saved) const {
  std::set<std::string_view> used;
  for (const train::NamedTensors* tensors : {&state_, &exchange_state_}) {
    for (const train::NamedTensor& tensor : *tensors) used.insert(tensor.name);
  }
  std::vector<std::string> unused;
  for (const train::CheckpointTensor& tensor : saved.tensors) {
    if (!used.contains(tensor.name)) unused.push_back(tensor.name);
  }
  return unused;
}

/// What a run has kept that is nothing to this one, such as the momentum of averages under another --consistency.
void RunState::report_unused(const train::Checkpoint& saved) const {
  const std::vector<std::string> unused = unused_tensors(saved);
  if (unused.empty()) return;
  fmt::print(stderr, "{}: {} of the checkpoint's tensors are left out, because this run does not use them: {}{}\n",
             options_.program, unused.size(), unused.front(), unused.size() > 1 ? ", …" : "");
}

/// Checkpoints that no option makes this run's.
void RunState::refuse_others(const train::Checkpoint& saved) const {
  const std::string& writer = saved.value("program");
  const std::string name = writer.substr(0, writer.find(' '));
  if (name != options_.program) {
    throw Error(ErrorCode::kMismatch, fmt::format("this is a checkpoint of {}: choose another folder with {}", name,
                                                  options_.checkpoints_option()));
  }
  if (!saved.metadata.contains("samples")) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("it was written by {}, which counted steps of one number of ranks and one batch size: "
                            "this version cannot continue it (`gyre export` and `gyre score` read it)",
                            writer));
  }
}

void RunState::restore_network(const train::Checkpoint& saved) const {
  const auto refuse = [&](std::string_view why) {
    const std::vector<std::string> changed = changed_options(saved);
    throw Error(ErrorCode::kMismatch,
                fmt::format("{}{}. No run can go on with another network: start a new one in another folder, with {}",
                            why, changed.empty() ? "" : fmt::format(" ({})", fmt::join(changed, "; ")),
                            options_.checkpoints_option()));
  };
  try {
    train::restore_from_checkpoint(saved, state_);
  } catch (const Error& error) {
    refuse(error.what());
  }
  // Of a deeper network, of which this one is a part. Those of optimizers and exchanges are named after what they are.
  for (const std::string& name : unused_tensors(saved)) {
    const bool of_network = name.find('/') == std::string::npos && !name.starts_with(kExchangePrefix);
    if (of_network) refuse(fmt::format("this network has no tensor {}", name));
  }
}

void RunState::restore_exchange(const train::Checkpoint& saved) const {
  if (exchange_state_.empty() || saved.has_tensor(exchange_state_.front().name)) {
    train::restore_from_checkpoint(saved, exchange_state_);
  } else {
    fmt::print(stderr, "{}: the checkpoint has no momentum of the workers' averages; it begins at zero\n",
               options_.program);
  }
}

void RunState::load(const train::CheckpointFolder::Found& found, Progress& progress) const {
  const train::Checkpoint& saved = found.checkpoint;
  const std::string where = found.path.string();
  for (const std::string& reason : found.rejected) {
    fmt::print(stderr, "{}: passed over {}\n", options_.program, reason);
  }
  try {
    refuse_others(saved);
    restore_network(saved);
    const Changes changes = changes_since(saved);
    if (!changes.text.empty() && !options_.resume_changed) {
      throw Error(
          ErrorCode::kMismatch,
          fmt::format("the run cannot continue exactly where it stopped: {}. Restore what has changed, or accept "
                      "what follows with --resume-changed",
                      changes.text));
    }
    const bool begins_again = changes.of_order && parse_count(saved.value(kPosition), kPosition) > 0;
    for (auto& [name, value] : progress) {
      const bool of_epoch = name.find('/') != std::string::npos;
      const std::string& text = saved.value(name);
      value = of_epoch && begins_again ? 0 : of_epoch ? parse_number(text, name) : parse_count(text, name);
    }
    if (!changes.text.empty()) fmt::print(stderr, "{}: continues although {}\n", options_.program, changes.text);
    restore_exchange(saved);
    report_unused(saved);
  } catch (Error& error) {
    throw error.add_context(fmt::format("cannot resume from {}", where));
  }
  if (options_.verbose > 0) {
    std::string at;
    for (const auto& [name, value] : progress) {
      if (name.find('/') == std::string::npos) at += fmt::format("{}{} {}", at.empty() ? "" : ", ", name, value);
    }
    say(fmt::format("resumed after {} from {}", at, where));
  }
  for (const std::string& change : changed_options(saved)) fmt::print(stderr, "{}: {}\n", options_.program, change);
}

std::vector<std::string> RunState::changed_options(const train::Checkpoint& saved) const {
  std::vector<std::string> changed;
  for (const auto& [name, value] : identity_.recipe) {
    const auto before = saved.metadata.find(name);
    if (before == saved.metadata.end() || before->second == value) continue;
    changed.push_back(fmt::format("{} was '{}' before the checkpoint and is '{}' now", name, before->second, value));
  }
  return changed;
}

std::vector<Sameness> RunState::samenesses() const {
  std::vector<Sameness> all = identity_.same;
  all.push_back({.key = "classes",
                 .name = "the list of classes",
                 .value = list_of(identity_.classes),
                 .meaning = "a label can mean a different class from here on"});
  return all;
}

std::vector<Sameness> RunState::samples_samenesses() const {
  const auto of = [](std::string key, const char* what, const std::string& value) {
    return Sameness{.key = std::move(key),
                    .name = fmt::format("the digest of the training files' {}", what),
                    .value = value,
                    .meaning = "the epoch in which the run stopped begins again, with the present samples",
                    .of_order = true};
  };
  return {of("files", "names", samples_.names), of("sizes", "sizes", samples_.sizes),
          of("contents", "contents", samples_.contents),
          of("versions-" + samples_.place, "versions", samples_.versions)};
}

RunState::Changes RunState::changes_since(const train::Checkpoint& saved) const {
  std::vector<std::string> changes;
  bool of_order = false;
  const auto compare = [&](const Sameness& what) {
    const auto found = saved.metadata.find(what.key);
    const bool was_known = found != saved.metadata.end();
    if (!was_known || found->second == what.value) return false;
    changes.push_back(fmt::format("{} ({})", describe_change(what, found->second), what.meaning));
    of_order = of_order || what.of_order;
    return true;
  };
  for (const Sameness& what : samenesses()) compare(what);
  for (const Sameness& what : samples_samenesses()) {
    if (!what.value.empty() && compare(what)) break;
  }
  return {fmt::format("{}", fmt::join(changes, "; ")), of_order};
}

train::Checkpoint RunState::checkpoint_of(const Progress& progress) const {
  train::Checkpoint checkpoint;
  checkpoint.metadata = identity_.recipe;
  checkpoint.metadata["program"] = fmt::format("{} {}", options_.program, GYRE_VERSION);
  for (const std::vector<Sameness>& all : {samenesses(), samples_samenesses()}) {
    for (const Sameness& what : all) {
      if (!what.value.empty()) checkpoint.metadata[what.key] = what.value;
    }
  }
  for (const auto& [name, value] : progress) checkpoint.metadata[name] = fmt::format("{}", value);
  const bool leader = exchange_.rank() == 0;
  train::add_to_checkpoint(checkpoint, leader ? state_ : optimizer_);
  if (leader) train::add_to_checkpoint(checkpoint, exchange_state_);
  return checkpoint;
}

void RunState::save(std::uint64_t number, const Progress& progress) {
  if (checkpoints_) checkpoints_->save(number, checkpoint_of(progress));
  newest_ = number;
}

std::optional<std::filesystem::path> RunState::newest() const {
  if (!newest_) return std::nullopt;
  return train::CheckpointFolder::path_in(options_.checkpoints(), *newest_);
}

void RunState::keep_if_best(const Metric& metric, double value, const Progress& progress) const {
  if (exchange_.rank() != 0) return;
  const std::filesystem::path path =
      options_.checkpoints() / fmt::format("{}{}{}", kBestPrefix, metric.name, kBestSuffix);
  const std::string key = fmt::format("best/{}", metric.name);
  if (std::filesystem::exists(path)) {
    try {
      const double before = parse_number(train::load_checkpoint(path).value(key), key);
      if (metric.lowest_is_best ? before <= value : before >= value) return;
    } catch (const Error& error) {
      fmt::print(stderr, "{}: {} is replaced: {}\n", options_.program, path.string(), error.what());
    }
  }
  train::Checkpoint checkpoint = checkpoint_of(progress);
  checkpoint.metadata[key] = fmt::format("{}", value);
  write_file_atomically(path, train::encode_checkpoint(checkpoint));
}

void RunState::save_epoch(std::uint64_t number, const Progress& progress) {
  const std::filesystem::path note = options_.checkpoints() / kUnreportedFile;
  if (exchange_.rank() == 0) {
    try {
      write_file_atomically(note, as_bytes(fmt::format("{}\n", number)));
    } catch (const Error&) {  // The checkpoint, which is larger, will say what is wrong with the disk.
    }
  }
  try {
    save(number, progress);
  } catch (...) {
    note_reported();
    throw;
  }
}

void RunState::note_reported() const {
  std::error_code ignored;
  if (exchange_.rank() == 0) std::filesystem::remove(options_.checkpoints() / kUnreportedFile, ignored);
}

bool RunState::is_reported() const {
  std::uint64_t number = 0;
  std::ifstream file(options_.checkpoints() / kUnreportedFile);
  return !newest_ || !(file >> number) || number != *newest_;
}

void RunState::add_scalars(std::uint64_t step, std::span<const data::Scalar> scalars) {
  if (tensorboard_) tensorboard_->add_scalars(static_cast<std::int64_t>(step), scalars);
  if (!metrics_) return;
  std::vector<metrics::Value> values;
  for (const data::Scalar& scalar : scalars) values.push_back({scalar.tag, scalar.value});
  metrics_->log(values, static_cast<std::int64_t>(step));
}

}  // namespace gyre::training
