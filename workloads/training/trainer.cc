#include "workloads/training/trainer.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/progress_bar.h"

namespace gyre::training {
namespace {

train::NamedTensors network_state(Task& task) {
  train::NamedTensors state;
  for (const auto& [name, tensor] : task.parameters()) state.push_back({name, tensor.detach()});
  state.insert(state.end(), task.buffers().begin(), task.buffers().end());
  return state;
}

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

double in_seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

void Trainer::Sums::add(const std::vector<double>& others, std::uint64_t count) {
  for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i] += others.at(i);
  samples += static_cast<double>(count);
}

std::vector<double> Trainer::Sums::means() const {
  std::vector<double> means = metrics;
  for (double& mean : means) mean = samples > 0 ? mean / samples : 0;
  return means;
}

Trainer::Trainer(TrainerOptions options, train::GradientExchange& exchange, Task& task, train::Sgd& optimizer,
                 train::EpochSchedule schedule, data::Loader& train, data::Loader& test)
    : options_(std::move(options)),
      exchange_(exchange),
      task_(task),
      optimizer_(optimizer),
      schedule_(std::move(schedule)),
      train_(train),
      test_(test),
      state_(options_.run, exchange, network_state(task), optimizer.state()),
      resumed_(no_sums()) {
  schedule_.steps_per_epoch = train_.steps();
}

Trainer::Sums Trainer::reduced(Sums sums) const {
  std::vector<double> values = sums.metrics;
  values.push_back(sums.samples);
  exchange_.sum(values);
  sums.samples = values.back();
  values.pop_back();
  sums.metrics = std::move(values);
  return sums;
}

/// `sums` are those of the epoch so far, over all ranks.
Progress Trainer::progress(const Sums& sums) const {
  Progress progress = {{"epoch", static_cast<double>(epoch_)},
                       {"step", static_cast<double>(step_in_epoch_)},
                       {"sum/samples", sums.samples}};
  for (std::size_t i = 0; i < sums.metrics.size(); ++i) {
    progress.emplace_back(fmt::format("sum/{}", task_.metrics()[i]), sums.metrics[i]);
  }
  return progress;
}

void Trainer::start_or_resume() {
  Progress found = progress(resumed_);
  state_.start_or_resume(found);
  epoch_ = static_cast<std::uint64_t>(found[0].second);
  step_in_epoch_ = static_cast<std::uint64_t>(found[1].second);
  if (step_in_epoch_ > train_.steps()) {
    throw Error(ErrorCode::kMismatch, fmt::format("the checkpoint is at step {} of an epoch, which now has {} steps: "
                                                  "resume with the same data, batch size and number of ranks",
                                                  step_in_epoch_, train_.steps()));
  }
  if (exchange_.rank() != 0) return;
  resumed_.samples = found[2].second;
  for (std::size_t i = 0; i < resumed_.metrics.size(); ++i) resumed_.metrics[i] = found[3 + i].second;
}

void Trainer::train_step(const data::Batch& batch, Sums& sums) {
  const data::RankBatch& samples = batch.samples();
  const std::uint64_t step = epoch_ * train_.steps() + step_in_epoch_;
  exchange_.zero_gradients();
  if (samples.counted > 0) {
    // The average of the ranks' gradients is then the gradient of the mean over all samples of the step, also where
    // the ranks' parts differ in size.
    const double scale = static_cast<double>(exchange_.size()) / static_cast<double>(samples.counted_globally);
    sums.add(task_.train(batch, step, scale), samples.counted);
    samples_here_ += samples.counted;
  }
  exchange_.synchronize();
  if (exchange_.begin_step()) {
    optimizer_.step(schedule_.at(step));
    exchange_.finish_step();
  }
  ++step_in_epoch_;
}

Trainer::Sums Trainer::train_epoch() {
  const std::uint64_t steps = train_.steps();
  ProgressBar bar(fmt::format("epoch {}/{}", epoch_ + 1, options_.epochs), steps,
                  progress_options_from_environment(STDOUT_FILENO));
  const auto start = SteadyClock::now();
  Sums sums = resumed_;
  resumed_ = no_sums();
  samples_here_ = 0;
  train_.start_epoch(epoch_, step_in_epoch_);
  while (step_in_epoch_ < steps) {
    auto batch = train_.next();
    if (!batch) break;
    exchange_.note_wait("data: train", batch->wait());
    train_step(*batch, sums);
    batch.reset();
    if (options_.check_replicas && exchange_.replicas_are_equal()) check_replicas();
    const bool due = options_.checkpoint_steps > 0 && step_in_epoch_ % options_.checkpoint_steps == 0;
    if (due && step_in_epoch_ < steps) save_within_epoch(sums);
    if (talks() && options_.verbose == 1) {
      const double rate = rate_after(seconds_since(start));
      bar.update(step_in_epoch_,
                 fmt::format("{}  {:.{}f} {}/s", describe("", sums), rate, rate < 10 ? 1 : 0, options_.samples));
    }
  }
  bar.clear();
  return reduced(sums);
}

/// What the ranks have summed so far goes to rank 0, as it will be after a resume.
void Trainer::save_within_epoch(Sums& sums) {
  exchange_.settle();
  const Sums together = reduced(sums);
  sums = exchange_.rank() == 0 ? together : no_sums();
  state_.save(epoch_ * train_.steps() + step_in_epoch_, progress(together));
}

Trainer::Sums Trainer::evaluate() {
  const c10::NoGradGuard no_grad;
  exchange_.broadcast(task_.buffers());
  Sums sums = no_sums();
  test_.start_epoch(0);
  while (const auto batch = test_.next()) {
    exchange_.note_wait("data: test", batch->wait());
    if (batch->samples().counted > 0) sums.add(task_.evaluate(*batch), batch->samples().counted);
  }
  return reduced(sums);
}

/// Samples per second of all ranks, which have as many as this one within a batch.
double Trainer::rate_after(double seconds) const {
  return static_cast<double>(samples_here_) * exchange_.size() / seconds;
}

void Trainer::check_replicas() const {
  train::NamedTensors parameters;
  for (const auto& [name, tensor] : task_.parameters()) parameters.push_back({name, tensor.detach()});
  train::check_replicas(exchange_, train::hash_tensors(parameters),
                        fmt::format("after step {} of epoch {}", step_in_epoch_, epoch_ + 1));
}

bool Trainer::reached(const Sums& tested) const {
  if (!options_.target) return false;
  const double value = tested.means().at(options_.target->metric);
  return options_.target->at_most ? value <= options_.target->value : value >= options_.target->value;
}

std::string Trainer::describe(std::string_view prefix, const Sums& sums) const {
  std::string text;
  const std::vector<double> means = sums.means();
  for (std::size_t i = 0; i < means.size(); ++i) {
    text += fmt::format("{}{}{} {:.4f}", text.empty() ? "" : "  ", prefix, task_.metrics()[i], means[i]);
  }
  return text;
}

/// On rank 0: the checkpoint, the curves, the line. `epoch_` is the next one already.
void Trainer::finish_epoch(const Sums& trained, const Sums& tested, double seconds) {
  state_.save(epoch_ * train_.steps(), progress(no_sums()));
  std::vector<std::string> names;
  std::vector<double> values;
  const auto add = [&](std::string name, double value) {
    names.push_back(std::move(name));
    values.push_back(value);
  };
  for (std::size_t i = 0; i < task_.metrics().size(); ++i) {
    add(fmt::format("train/{}", task_.metrics()[i]), trained.means()[i]);
    add(fmt::format("test/{}", task_.metrics()[i]), tested.means()[i]);
  }
  const data::StallLedger ledger = train_.ledger();
  add(fmt::format("train/{}_per_second", options_.samples), rate_after(seconds));
  add("train/learning_rate", schedule_.at(epoch_ * train_.steps() - 1));
  add("train/waited_for_data_seconds", in_seconds(ledger.waited));
  std::vector<data::Scalar> scalars;
  for (std::size_t i = 0; i < names.size(); ++i) scalars.push_back({names[i], values[i]});
  state_.add_scalars(epoch_, scalars);
  if (!talks()) return;
  say(fmt::format("epoch {}/{}  {}  {}  {:.1f} {}/s  {:.1f} s, {:.1f} of them waiting for data", epoch_,
                  options_.epochs, describe("", trained), describe("test ", tested), rate_after(seconds),
                  options_.samples, seconds, in_seconds(ledger.waited)));
}

Outcome Trainer::run() {
  exchange_.attach(task_.parameters());
  start_or_resume();
  Sums trained = no_sums();
  std::optional<Sums> tested;
  while (epoch_ < options_.epochs && !(tested && reached(*tested))) {
    const auto start = SteadyClock::now();
    trained = train_epoch();
    exchange_.settle();
    const double seconds = seconds_since(start);
    check_replicas();
    ++epoch_;
    step_in_epoch_ = 0;
    tested = evaluate();
    finish_epoch(trained, *tested, seconds);
  }
  if (!tested) tested = evaluate();  // Resumed, and nothing left to train.
  const bool target_reached = reached(*tested);
  if (talks() && options_.target) {
    say(fmt::format("{} after {} epochs: the target {} is {}", describe("test ", *tested), epoch_,
                    options_.target->value, target_reached ? "reached" : "not reached"));
  }
  return {.epochs = epoch_,
          .train = trained.means(),
          .test = tested->means(),
          .target_reached = target_reached,
          .state_hash = state_.hash()};
}

}  // namespace gyre::training
