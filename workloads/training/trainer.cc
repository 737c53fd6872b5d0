#include "workloads/training/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/progress_bar.h"
#include "workloads/training/report.h"

namespace gyre::training {
namespace {

train::NamedTensors network_state(Task& task) {
  train::NamedTensors state;
  for (const auto& [name, tensor] : task.parameters()) state.push_back({name, tensor.detach()});
  state.insert(state.end(), task.buffers().begin(), task.buffers().end());
  return state;
}

std::vector<at::Tensor> copies(const train::NamedTensors& tensors) {
  std::vector<at::Tensor> copies;
  for (const train::NamedTensor& each : tensors) copies.push_back(each.tensor.clone());
  return copies;
}

/// What the order of an epoch's samples follows from, besides the files.
std::string describe_order(const data::SamplerOptions& sampling) {
  const std::string shared = sampling.sharing == data::Sharing::kEveryRankAll ? ", each rank's own" : "";
  if (sampling.shuffling != data::Shuffling::kBlocks) return fmt::format("seed {}{}", sampling.seed, shared);
  return fmt::format("seed {}{}, {} open blocks, {} streams", sampling.seed, shared, sampling.open_blocks,
                     sampling.streams);
}

/// What the programs have in common of that which has to be as it was. Replicas that are equal after every step can be
/// on any number of workers; others have something of their own.
RunIdentity with_sampling(RunIdentity identity, const TrainerOptions& options, const train::GradientExchange& exchange,
                          const data::SamplerOptions& sampling) {
  const auto ranks = static_cast<std::uint64_t>(sampling.ranks);
  const bool own_order = sampling.sharing == data::Sharing::kEveryRankAll;
  identity.same.push_back({.key = "global_batch",
                           .name = "the global batch",
                           .value = fmt::format("{}", ranks * sampling.batch_per_rank),
                           .meaning = "steps have a different size from here on, and the learning rate a different "
                                      "effect; no sample of the epoch is lost or repeated"});
  identity.same.push_back({.key = "order",
                           .name = "the order of the samples",
                           .value = describe_order(sampling),
                           .meaning = "the epoch in which the run stopped begins again, in the new order",
                           .of_order = true});
  identity.same.push_back({.key = "remainder",
                           .name = "an epoch's last, incomplete batch",
                           .value = sampling.remainder == data::Remainder::kDrop ? "dropped" : "used",
                           .meaning = "epochs have a different number of samples from here on"});
  identity.same.push_back({.key = "consistency",
                           .name = "--consistency",
                           .value = exchange.replicas_are_equal() ? "sync" : options.consistency,
                           .meaning = "the workers keep together in another way from here on"});
  if (!exchange.replicas_are_equal()) {  // The workers settle before each.
    identity.recipe["--checkpoint-steps"] = fmt::format("{}", options.checkpoint_steps);
  }
  if (exchange.replicas_are_equal() && !own_order) return identity;
  identity.same.push_back({.key = "ranks",
                           .name = "the number of workers",
                           .value = fmt::format("{}", ranks),
                           .meaning = own_order ? "each worker has its own order of the samples, in which it continues"
                                                : "each worker has its own optimizer: new workers begin with rank 0's, "
                                                  "and those of workers that are gone are lost"});
  return identity;
}

}  // namespace

Trainer::Trainer(const TrainerOptions& options, RunIdentity identity, train::GradientExchange& exchange, Task& task,
                 train::Optimizer& optimizer, train::EpochSchedule schedule, std::vector<data::Loader*> train,
                 data::Loader& test)
    : options_(options),
      exchange_(exchange),
      task_(task),
      optimizer_(optimizer),
      schedule_(std::move(schedule)),
      train_(std::move(train)),
      test_(test),
      state_(options, with_sampling(std::move(identity), options, exchange, train_.front()->sampling()), exchange,
             network_state(task), optimizer.state()),
      divergence_(exchange, task.metrics(), [this] { return advice(); }),
      position_(data::positions_per_step(train_.front()->sampling()), train_.front()->sampling().count),
      report_(task.metrics(), options.samples),
      survivors_(exchange.size()),
      resumed_(no_sums()) {}

MetricSums Trainer::reduced(MetricSums sums) {
  std::vector<double> values = sums.metrics;
  values.push_back(sums.samples);
  const std::size_t own = values.size();
  const std::vector<double> presence = survivors_.presence(exchange_.rank());
  values.insert(values.end(), presence.begin(), presence.end());
  exchange_.sum(values);
  const std::vector<int> died = survivors_.note(std::span(values).subspan(own));
  sums.samples = values[own - 1];
  values.resize(own - 1);
  sums.metrics = std::move(values);
  if (died.empty()) return sums;
  died_.insert(died_.end(), died.begin(), died.end());
  share_among_survivors();
  return sums;
}

/// Ranks that run through all samples, each in an order of its own, have nothing to share but the test set.
void Trainer::share_among_survivors() {
  const int place = survivors_.place_of(exchange_.rank());
  test_.share_among(place, survivors_.count());
  if (train_.front()->sampling().sharing == data::Sharing::kEveryRankAll) return;
  for (data::Loader* loader : train_) loader->share_among(place, survivors_.count());  // One: there are several ranks.
  position_.set_step_size(data::positions_per_step(train_.front()->sampling()));
}

void Trainer::count_samples(const MetricSums& together) {
  const std::vector<int> died = std::exchange(died_, {});
  const std::uint64_t from = std::exchange(counted_position_, position_.position());
  const double before = std::exchange(counted_samples_, together.samples);
  if (died.empty()) return;
  const bool shared = train_.front()->sampling().sharing == data::Sharing::kSharded;
  const auto orders = shared ? 1.0 : static_cast<double>(survivors_.count()) + static_cast<double>(died.size());
  const double passed = static_cast<double>(position_.position() - from) * orders;
  const double missing = std::max(0.0, passed - (together.samples - before));
  if (shared) position_.leave_out(static_cast<std::uint64_t>(missing));
  if (exchange_.rank() != 0) return;
  fmt::print(
      stderr,
      "{}: {}: {} of the {} {} of epoch {} since position {} are not counted, whose gradients may have been lost. "
      "{}\n",
      options_.program, describe_deaths(died), missing, passed, options_.samples, position_.epoch() + 1, from,
      survivors_.count() == 1 ? fmt::format("From here on one worker trains all {}", options_.samples)
      : shared ? fmt::format("From here on the other {} share all {}", survivors_.count(), options_.samples)
               : fmt::format("The other {} go on, each with all {}", survivors_.count(), options_.samples));
}

/// `sums` are those of the epoch so far, over all ranks.
Progress Trainer::progress(const MetricSums& sums) const {
  Progress progress = position_.progress();
  progress.emplace_back("here/samples", sums.samples);
  for (std::size_t i = 0; i < sums.metrics.size(); ++i) {
    progress.emplace_back(fmt::format("here/{}", task_.metrics()[i].name), sums.metrics[i]);
  }
  return progress;
}

void Trainer::start_or_resume() {
  Progress found = progress(resumed_);
  state_.start_or_resume(found);
  position_.restore(found, options_.samples);
  optimizer_.set_iteration(position_.step());
  counted_position_ = position_.position();
  // Between two epochs, a checkpoint has the sums of the last one.
  counted_samples_ = counted_position_ == 0 ? 0.0 : value_of(found, "here/samples");
  if (exchange_.rank() != 0) return;
  resumed_.samples = value_of(found, "here/samples");
  for (std::size_t i = 0; i < resumed_.metrics.size(); ++i) {
    resumed_.metrics[i] = value_of(found, fmt::format("here/{}", task_.metrics()[i].name));
  }
}

std::uint64_t Trainer::start_loaders() {
  std::uint64_t steps = 0;  // The same of each.
  for (data::Loader* loader : train_) steps = loader->start_epoch_at(position_.epoch(), position_.position());
  return steps;
}

double Trainer::learning_rate() const {
  return schedule_.at(position_.epoch(), position_.steps_into_epoch() / static_cast<double>(train_.front()->steps()));
}

/// Forward and backward over the next batch of a loader.
std::uint64_t Trainer::compute_gradients(data::Loader& loader, MetricSums& step_sums, bool keeps_batch) {
  std::optional<data::Batch> batch = loader.next();
  GYRE_CHECK(batch.has_value());
  exchange_.note_wait("data: train", batch->wait());
  const data::RankBatch& samples = batch->samples();
  if (samples.counted == 0) return samples.counted_globally;
  if (options_.print_samples) {
    say(fmt::format("samples epoch {} step {} rank {}: {}", position_.epoch() + 1, position_.step_in_epoch() + 1,
                    exchange_.rank(), fmt::join(std::span(samples.samples).first(samples.counted), " ")));
  }
  // The average of the ranks' gradients is then the gradient of the mean over all samples of the step, also where the
  // ranks' parts differ in size.
  const std::uint64_t globally = samples.counted_globally;
  const double scale = static_cast<double>(loader.sampling().ranks) / static_cast<double>(globally);
  step_sums.add(task_.train(*batch, position_.step(), scale), samples.counted);
  if (keeps_batch) last_batch_.emplace(std::move(*batch));
  return globally;
}

void Trainer::train_step(MetricSums& sums, bool keeps_batch) {
  const std::string where = position_.in_step();
  exchange_.zero_gradients();
  MetricSums step_sums = no_sums();
  // Backward adds to the gradients that are there: those of several loaders are summed in their order.
  std::uint64_t globally = 0;
  for (data::Loader* loader : train_) globally = compute_gradients(*loader, step_sums, keeps_batch);
  sums.add(step_sums.metrics, static_cast<std::uint64_t>(step_sums.samples));
  divergence_.report(step_sums.metrics, where);
  exchange_.synchronize();
  divergence_.check_reports(where);
  if (train_.size() > 1) {
    for (const auto& [name, parameter] : task_.parameters()) {
      if (parameter.grad().defined()) parameter.mutable_grad().div_(static_cast<double>(train_.size()));
    }
  }
  const double rate = learning_rate();
  if (exchange_.begin_step()) {
    optimizer_.step(rate);
    exchange_.finish_step();
  }
  report_.note_step(rate, globally);
  position_.pass_step();
  check_step();
}

/// After every step: what --print-hashes and --check-replicas ask for.
void Trainer::check_step() const {
  if (options_.print_hashes) {
    say(fmt::format("hash epoch {} step {} rank {} {:016x}", position_.epoch() + 1, position_.step_in_epoch(),
                    exchange_.rank(), state_.hash()));
  }
  if (options_.check_replicas && exchange_.replicas_are_equal()) check_replicas();
}

void Trainer::report_untrained_classes() {
  if (task_.classes() == 0 || std::exchange(has_seen_all_, true)) return;
  std::vector<double> samples = task_.trained_per_class();
  samples.resize(static_cast<std::size_t>(task_.classes()));
  exchange_.sum(samples);
  const auto missing = std::ranges::count(samples, 0.0);
  if (missing == 0 || exchange_.rank() != 0) return;
  const auto first = std::ranges::find(samples, 0.0) - samples.begin();
  const auto last = std::ranges::find(samples.rbegin(), samples.rend(), 0.0).base() - samples.begin() - 1;
  const std::string which = missing == 1                  ? fmt::format("{}", first)
                            : missing == last - first + 1 ? fmt::format("{} to {}", first, last)
                                                          : fmt::format("{}, …, {}", first, last);
  fmt::print(stderr,
             "{}: the training {} have none of class {} ({} of the network's {} classes): is --classes right?\n",
             options_.program, options_.samples, which, missing, samples.size());
}

MetricSums Trainer::train_epoch() {
  const bool is_whole = position_.position() == 0;
  std::uint64_t left = start_loaders();  // Steps.
  ProgressBar bar(fmt::format("epoch {}/{}", position_.epoch() + 1, options_.epochs), position_.step_in_epoch() + left,
                  progress_options_from_environment(STDOUT_FILENO));
  report_.begin(resumed_.samples);
  MetricSums sums = resumed_;
  resumed_ = no_sums();
  while (left > 0) {
    const bool saves = saves_after_step(left);
    train_step(sums, saves);
    if (--left > 0 && saves) left = save_within_epoch(sums) ? start_loaders() : left;
    if (talks() && options_.verbose == 1) bar.update(position_.step_in_epoch(), report_.describe_progress(sums));
  }
  bar.clear();
  sums = reduced(sums);
  count_samples(sums);
  if (is_whole) report_untrained_classes();
  counted_position_ = 0;
  counted_samples_ = 0;
  return sums;
}

bool Trainer::saves_after_step(std::uint64_t left) const {
  const std::uint64_t every = options_.checkpoint_steps;
  return left == 1 || (every > 0 && (position_.step_in_epoch() + 1) % every == 0);
}

/// A checkpoint has to be one from which the run can go on. Weights can be broken, or finite and too large to compute
/// with: then a forward pass of the last batch shows it, and `evaluates` another one as in an evaluation.
void Trainer::check_before_saving(bool evaluates) {
  const std::string where = position_.after_step();
  divergence_.check_tensors(state_.tensors(), where);
  const std::string in_forward = fmt::format("in a forward pass {}", where);
  const std::vector<at::Tensor> buffers = copies(task_.buffers());
  divergence_.check_sums(last_batch_ ? task_.measure(*last_batch_, position_.step()) : no_sums().metrics, "",
                         in_forward);
  divergence_.check_tensors(task_.buffers(), in_forward);
  for (std::size_t i = 0; i < buffers.size(); ++i) task_.buffers()[i].tensor.copy_(buffers[i]);
  if (evaluates) {
    divergence_.check_sums(last_batch_ ? task_.evaluate(*last_batch_) : no_sums().metrics, "",
                           fmt::format("in an evaluation {}", where));
  }
  last_batch_.reset();
}

/// What to do about a run that has diverged.
std::string Trainer::advice() const {
  constexpr const char* kData = "look for values in the data that are not numbers";
  const auto newest = state_.newest();
  if (!newest) {
    return fmt::format("No checkpoint has been written yet: start again with a lower learning rate, or {}", kData);
  }
  if (!position_.has_stepped()) {
    return fmt::format(
        "{}, from which the run continued, leads there at once: remove it to continue from an earlier "
        "one, or {}",
        newest->string(), kData);
  }
  return fmt::format("{} is from before: continue from it with --resume and a lower learning rate, or {}",
                     newest->string(), kData);
}

/// What the ranks have summed so far goes to rank 0, as it will be after a resume.
bool Trainer::save_within_epoch(MetricSums& sums) {
  exchange_.settle();
  const int ranks = survivors_.count();
  const MetricSums together = reduced(sums);
  count_samples(together);
  sums = exchange_.rank() == 0 ? together : no_sums();
  check_before_saving(false);
  state_.save(position_.samples(), progress(together));
  return survivors_.count() < ranks;
}

MetricSums Trainer::evaluate() {
  for (;;) {
    const int ranks = survivors_.count();
    MetricSums sums = no_sums();
    test_.start_epoch(0);
    while (const auto batch = test_.next()) {
      exchange_.note_wait("data: test", batch->wait());
      if (batch->samples().counted > 0) sums.add(task_.evaluate(*batch), batch->samples().counted);
    }
    divergence_.check_sums(sums.metrics, "test ",
                           fmt::format("after epoch {} (step {} of the run)", position_.epoch(), position_.step()));
    sums = reduced(sums);
    if (survivors_.count() == ranks) return sums;
  }
}

void Trainer::check_replicas() const {
  train::NamedTensors parameters;
  for (const auto& [name, tensor] : task_.parameters()) parameters.push_back({name, tensor.detach()});
  train::check_replicas(exchange_, train::hash_tensors(parameters), position_.after_step());
}

std::size_t Trainer::metric_called(std::string_view name) const {
  const auto found = std::ranges::find(task_.metrics(), name, &Metric::name);
  GYRE_CHECK(found != task_.metrics().end());
  return static_cast<std::size_t>(found - task_.metrics().begin());
}

bool Trainer::reached(const MetricSums& tested) const {
  if (!options_.target) return false;
  const std::size_t metric = metric_called(options_.target->metric);
  const double value = tested.means().at(metric);
  return task_.metrics()[metric].lowest_is_best ? value <= options_.target->value : value >= options_.target->value;
}

void Trainer::keep_if_best(const MetricSums& tested) const {
  if (options_.keep_best.empty()) return;
  const std::size_t metric = metric_called(options_.keep_best);
  state_.keep_if_best(task_.metrics()[metric], tested.means().at(metric), progress(no_sums()));
}

/// On rank 0: the curves and the line of the epoch that has been passed.
void Trainer::report_epoch(const MetricSums& trained, const MetricSums& tested) {
  const std::chrono::nanoseconds waited = train_.front()->ledger().waited;
  const auto curves = report_.curves(trained, tested, waited);
  std::vector<data::Scalar> scalars;
  for (const auto& [name, value] : curves) scalars.push_back({name, value});
  state_.add_scalars(position_.epoch(), scalars);
  if (talks()) {
    say(fmt::format("epoch {}/{}  {}", position_.epoch(), options_.epochs, report_.line(trained, tested, waited)));
  }
  state_.note_reported();
}

Outcome Trainer::run() {
  train::NamedTensors exchanged = task_.parameters();
  exchanged.insert(exchanged.end(), divergence_.carriers().begin(), divergence_.carriers().end());
  exchange_.attach(exchanged);
  start_or_resume();
  MetricSums trained = no_sums();
  std::optional<MetricSums> tested;
  if (position_.is_between_epochs()) {  // Resumed behind an epoch, whose evaluation may have been interrupted.
    trained = reduced(std::exchange(resumed_, no_sums()));
    tested = evaluate();
    keep_if_best(*tested);
    if (exchange_.rank() == 0 && !state_.is_reported()) report_epoch(trained, *tested);
  }
  while (position_.epoch() < options_.epochs && !(tested && reached(*tested))) {
    trained = train_epoch();
    exchange_.settle();
    report_.end();
    check_replicas();
    exchange_.broadcast(task_.buffers());  // Evaluations use rank 0's, which are saved.
    check_before_saving(true);
    position_.pass_epoch();
    state_.save_epoch(position_.samples(), progress(trained));  // Before an evaluation, which takes its time.
    tested = evaluate();
    keep_if_best(*tested);
    report_epoch(trained, *tested);
  }
  if (!tested) tested = evaluate();  // Resumed within an epoch behind the last one that is asked for.
  const bool target_reached = reached(*tested);
  if (!position_.has_stepped() && !target_reached && talks()) {
    say(fmt::format("nothing to train: {} epochs are finished, and --epochs is {}; to go on, ask for more. {}",
                    position_.epoch(), options_.epochs, describe(task_.metrics(), "test ", *tested)));
  }
  std::string verdict;
  if (options_.target) {
    verdict = fmt::format("{} after {} epochs: the target {} is {}", describe(task_.metrics(), "test ", *tested),
                          position_.epoch(), options_.target->value, target_reached ? "reached" : "not reached");
    if (talks()) say(verdict);
  }
  return {.epochs = position_.epoch(),
          .train = trained.means(),
          .test = tested->means(),
          .target_reached = target_reached,
          .missed = target_reached ? "" : verdict,
          .state_hash = state_.hash()};
}

}  // namespace gyre::training
