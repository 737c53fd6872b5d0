#include "gyre/engine/engine.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/rank_file.h"
#include "gyre/collectives/collectives.h"
#include "gyre/collectives/select.h"
#include "gyre/engine/internal/channels.h"
#include "gyre/engine/internal/clock_offset.h"
#include "gyre/engine/internal/lane_work.h"
#include "gyre/engine/internal/open/board.h"
#include "gyre/engine/internal/open/coordinator_service.h"
#include "gyre/engine/internal/open/negotiation_tree.h"
#include "gyre/engine/internal/open/open_lane.h"
#include "gyre/engine/internal/open/relay.h"
#include "gyre/engine/internal/open/signature_check.h"
#include "gyre/engine/internal/plan/plan_agreement.h"
#include "gyre/engine/internal/plan/plan_lane.h"
#include "gyre/engine/internal/stall/process_waits.h"

namespace gyre::engine {

namespace {

constexpr std::chrono::seconds kLinkTimeout{60};
constexpr std::chrono::seconds kLongestClockMeasurement{5};

EngineOptions with_waits(EngineOptions options) {
  if (!options.waits) options.waits = make_process_waits();
  return options;
}

void check_tensors(const std::vector<PlanTensor>& tensors, const PlanOptions& options) {
  for (const PlanTensor& tensor : tensors) {
    static_cast<void>(element_count(tensor.shape));
    if (tensor.type == DataType::kBoolean) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("plan '{}': bool tensor '{}'", options.name, tensor.name));
    }
    const std::string problem = collectives::reduction_problem({.type = tensor.type,
                                                                .operation = options.operation,
                                                                .prescale = options.prescale,
                                                                .postscale = options.postscale});
    if (!problem.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("plan '{}', tensor '{}': {}", options.name, tensor.name, problem));
    }
  }
}

class WaitingJoin final : public Join {
 public:
  WaitingJoin(Handle handle, std::uint64_t period, internal::JoinWatch& joins,
              std::shared_ptr<internal::PlanRegistry> plans)
      : handle_(std::move(handle)), period_(period), joins_(joins), plans_(std::move(plans)) {}

  bool wait_for(std::chrono::milliseconds patience) override {
    const auto until = SteadyClock::now() + patience;
    do {
      const std::uint64_t news = joins_.news();
      // In this order: what was begun before the last rank joined is known when the join is done.
      const bool done = handle_.done();
      if (done) handle_.wait();
      bool all_followed = true;
      for (const internal::PlanStep& step : joins_.begun_in(period_)) all_followed &= plans_->follow(step, kSlice);
      if (done && all_followed) {
        if (last_rank_ < 0) last_rank_ = static_cast<int>(handle_.take_result().shape.at(0));
        return true;
      }
      if (all_followed) joins_.wait_for_news(news, until);
    } while (SteadyClock::now() < until);
    return false;
  }

  int last_rank() const override { return last_rank_; }

 private:
  /// How long one plan may keep the others from being looked at; no plan's step depends on another's for longer.
  static constexpr std::chrono::milliseconds kSlice{10};

  const Handle handle_;
  const std::uint64_t period_;
  internal::JoinWatch& joins_;
  const std::shared_ptr<internal::PlanRegistry> plans_;
  int last_rank_ = -1;
};

}  // namespace

class Engine::Implementation {
 public:
  Implementation(group::Group& group, EngineOptions options, Logger logger, std::optional<TimelineRows> timeline);
  ~Implementation() { shutdown(); }

  std::vector<Handle> submit(std::vector<Request> requests);
  Handle run_or_submit(Request request);
  void check_plan(const std::vector<PlanTensor>& tensors, const PlanOptions& options);
  std::unique_ptr<Plan> make_plan(std::vector<PlanTensor> tensors, const PlanOptions& options);
  EngineStatistics statistics() const;
  std::unique_ptr<Join> begin_join(const JoinOptions& options);
  void shutdown();
  Timeline& own_timeline() const;
  void start_own_timeline(const std::filesystem::path& path, bool mark_cycles, std::int64_t most_bytes = 0);
  void start_job_timeline(const JobTimeline& order);
  std::uint64_t next_exchange() { return ++exchanges_; }
  internal::Agreements& agreements() { return open_lane_->agreements(); }

  group::Group& group_;
  const EngineOptions options_;
  const Logger logger_;
  const std::shared_ptr<Timeline> own_timeline_;  // Null in a process set.
  const TimelineRows timeline_;

 private:
  /// Opens the negotiation's links and starts what serves them; returns the way to the coordinator, null in a group of
  /// one.
  std::unique_ptr<net::Stream> take_place(const internal::NegotiationPlace& place);
  /// Everybody's `own`, one after the other.
  Bytes gather(const std::string& name, const Bytes& own);
  struct Agreement {
    std::vector<std::size_t> ready_order;  // The fullest one.
    std::uint64_t number = 0;              // Rank 0's.
  };
  /// Throws Error(kMismatch) on every rank unless all describe the plan alike.
  Agreement agree(const std::string& name, const std::vector<std::string>& description,
                  const std::vector<std::size_t>& ready_order, std::uint64_t number);
  std::vector<std::string> describe(const std::vector<PlanTensor>& tensors, const PlanOptions& options) const;
  std::size_t bucket_bytes() const { return largest_bucket_bytes(options_.fusion_bytes, group_.topology().one_host()); }
  /// What is known of the buckets before the first step; logged.
  std::vector<BucketStatistics> describe_buckets(const std::string& name, const internal::PlanLayout& layout) const;

  std::shared_ptr<internal::PlanRegistry> plans_ = std::make_shared<internal::PlanRegistry>();
  internal::JoinWatch joins_{[this](const internal::PlanStep& step) { open_lane_->announce_step(step); }};
  const internal::StallAlarm alarm_{options_.stall_warning, options_.stall_failure, options_.deadlock_check,
                                    [this](const internal::StalledStep& step) { open_lane_->report_stall(step); }};
  std::unique_ptr<internal::CoordinatorService> coordinator_;  // Rank 0 of a group of several; serves until destroyed.
  std::unique_ptr<internal::Relay> relay_;  // Of an inner rank of the negotiation's tree; serves until destroyed.
  std::unique_ptr<internal::OpenLane> open_lane_;
  std::unique_ptr<internal::Board> board_;  // One host only.
  std::atomic<std::uint64_t> exchanges_ = 0;
  Mutex shutdown_mutex_;
  bool shut_down_ GYRE_GUARDED_BY(shutdown_mutex_) = false;
};

Engine::Implementation::Implementation(group::Group& group, EngineOptions options, Logger logger,
                                       std::optional<TimelineRows> timeline)
    : group_(group),
      options_(with_waits(std::move(options))),
      logger_(std::move(logger)),
      own_timeline_(timeline ? nullptr : std::make_shared<Timeline>(logger_)),
      timeline_(timeline ? *std::move(timeline) : TimelineRows(own_timeline_)) {
  if (own_timeline_ && !options_.timeline.empty()) {
    start_own_timeline(options_.timeline, options_.timeline_mark_cycles);
  } else if (own_timeline_ && options_.job_timeline) {
    start_job_timeline(*options_.job_timeline);
  }
  const auto place = internal::negotiation_place(group_.topology().hosts(), group_.rank(), options_.negotiation_arity);
  const int parent = place.children.empty() ? place.parent : group_.rank();
  open_lane_ = std::make_unique<internal::OpenLane>(group_, take_place(place), parent, joins_, *plans_, timeline_,
                                                    logger_, options_);
  if (group_.size() > 1 && group_.topology().one_host()) {
    board_ = std::make_unique<internal::Board>(group_, timeline_, logger_, options_.collective_timeout);
  }
}

std::unique_ptr<net::Stream> Engine::Implementation::take_place(const internal::NegotiationPlace& place) {
  const Deadline deadline = Deadline::after(kLinkTimeout);
  // Parents are lower than their children: a rank that connects to its own parent first keeps nobody waiting.
  std::unique_ptr<net::Stream> to_parent;
  if (place.parent >= 0) to_parent = group_.open_link(place.parent, internal::kNegotiationChannel, deadline);
  if (place.children.empty()) return to_parent;
  auto [own_end, far_end] = net::make_stream_pair({"the coordinator", fmt::format("rank {}", group_.rank())});
  std::vector<internal::NegotiationChild> children;
  children.push_back({{group_.rank(), {group_.rank()}}, internal::NegotiationLink(std::move(far_end))});
  for (const auto& child : place.children) {
    children.push_back(
        {child, internal::NegotiationLink(group_.open_link(child.rank, internal::kNegotiationChannel, deadline))});
  }
  if (place.parent < 0) {
    coordinator_ =
        std::make_unique<internal::CoordinatorService>(group_, std::move(children), options_, timeline_, logger_);
  } else {
    relay_ = std::make_unique<internal::Relay>(group_, place.parent, std::move(to_parent), std::move(children),
                                               options_.shutdown_timeout);
  }
  return std::move(own_end);
}

std::vector<Handle> Engine::Implementation::submit(std::vector<Request> requests) {
  for (const Request& request : requests) internal::validate(request, group_.size());
  return open_lane_->submit(std::move(requests));
}

Handle Engine::Implementation::run_or_submit(Request request) {
  open_lane_->note_this_thread();
  internal::validate(request, group_.size());
  const bool may_meet = board_ && internal::Board::eligible(request);
  const bool idle = may_meet && internal::Board::sizes_are_known(request) && open_lane_->idle();
  if (may_meet && !idle) board_->pass_by(request);
  if (idle && open_lane_->reserve(request.name)) {
    struct Release {
      internal::OpenLane& lane;
      const std::string name;
      bool held = true;
      void now() {
        if (std::exchange(held, false)) lane.release(name);
      }
      ~Release() { now(); }
    } release{*open_lane_, request.name};
    const auto began = SteadyClock::now();
    if (auto result = board_->try_run(request)) {
      timeline_.add(
          internal::kProgramRow,
          {.name = internal::kWaitPhase, .began = began, .lasted = SteadyClock::now() - began, .detail = request.name});
      const Handle done;
      done.complete(std::move(*result));
      return done;
    }
    release.now();
  }
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return open_lane_->submit(std::move(requests)).front();
}

Bytes Engine::Implementation::gather(const std::string& name, const Bytes& own) {
  Request request;
  request.name = name;
  request.transient = true;
  request.signature = {.kind = OperationKind::kAllgather, .shape = {static_cast<std::int64_t>(own.size())}};
  request.input = own;
  const Handle gathered = run_or_submit(std::move(request));
  gathered.wait();
  return gathered.take_result().bytes;
}

Engine::Implementation::Agreement Engine::Implementation::agree(const std::string& name,
                                                                const std::vector<std::string>& description,
                                                                const std::vector<std::size_t>& ready_order,
                                                                std::uint64_t number) {
  const internal::PlanProposal own{internal::hash_description(description), ready_order, number};
  const auto proposals = internal::decode_proposals(
      gather(std::string(internal::kPlanProposalName) + name, internal::encode_proposal(own)), group_.size());
  const bool differ = std::any_of(proposals.begin(), proposals.end(), [&](const internal::PlanProposal& proposal) {
    return proposal.description_hash != proposals[0].description_hash;
  });
  // All ranks see the same hashes, so all of them go this way or none does.
  if (differ) {
    const Bytes all =
        gather(std::string(internal::kPlanDescriptionName) + name, internal::encode_description(description));
    internal::check_descriptions(name, internal::decode_descriptions(all, group_.size()));
  }
  return {internal::fullest_order(proposals), proposals[0].number};
}

std::vector<std::string> Engine::Implementation::describe(const std::vector<PlanTensor>& tensors,
                                                          const PlanOptions& options) const {
  return internal::describe_plan(tensors, options, bucket_bytes());
}

void Engine::Implementation::check_plan(const std::vector<PlanTensor>& tensors, const PlanOptions& options) {
  check_tensors(tensors, options);
  agree(options.name, describe(tensors, options), {}, 0);
}

std::vector<BucketStatistics> Engine::Implementation::describe_buckets(const std::string& name,
                                                                       const internal::PlanLayout& layout) const {
  std::vector<BucketStatistics> described;
  const collectives::Placement placement = collectives::placement_of(group_.topology());
  for (std::size_t index = 0; index < layout.buckets.size(); ++index) {
    const internal::PlanBucket& bucket = layout.buckets[index];
    const auto choice = collectives::choose_allreduce(bucket.size_bytes, true, placement);
    logger_->info("plan '{}', bucket {} of {}: {} {} tensors, {}: {} ({})", name, index, layout.buckets.size(),
                  bucket.tensors.size(), collectives::name(bucket.type), format_bytes(bucket.size_bytes),
                  collectives::algorithm_name(choice.algorithm), choice.reason);
    described.push_back({.tensor_count = bucket.tensors.size(),
                         .size_bytes = bucket.size_bytes,
                         .type = bucket.type,
                         .algorithm = choice.algorithm,
                         .reason = choice.reason});
  }
  return described;
}

std::unique_ptr<Plan> Engine::Implementation::make_plan(std::vector<PlanTensor> tensors, const PlanOptions& options) {
  check_tensors(tensors, options);
  static_cast<void>(
      internal::complete_order(options.ready_order, tensors.size()));  // What is wrong with it is this rank's mistake.
  const Agreement agreement =
      agree(options.name, describe(tensors, options), options.ready_order, plans_->next_number());
  const auto order = internal::complete_order(agreement.ready_order, tensors.size());
  internal::PlanLayout layout = internal::lay_out(tensors, order, bucket_bytes());
  auto buckets = describe_buckets(options.name, layout);
  return std::make_unique<internal::PlanLane>(
      group_, internal::kFirstPlanChannel + agreement.number, std::move(tensors), options, std::move(layout),
      std::move(buckets), joins_, alarm_, timeline_, plans_,
      internal::PlanTimeouts{options_.collective_timeout, options_.shutdown_timeout});
}

EngineStatistics Engine::Implementation::statistics() const {
  EngineStatistics statistics;
  statistics.lanes.push_back(open_lane_->statistics());
  if (board_) statistics.lanes.push_back(board_->statistics());
  plans_->collect(statistics);
  return statistics;
}

std::unique_ptr<Join> Engine::Implementation::begin_join(const JoinOptions& options) {
  if (plans_->any_step_begun()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "join: an optimizer's step has begun and not ended; call join() between step() and the next backward()");
  }
  const std::uint64_t period = joins_.period();
  const Handle handle = open_lane_->join({options.every_operation, options.divide_by_contributors});
  return std::make_unique<WaitingJoin>(handle, period, joins_, plans_);
}

Timeline& Engine::Implementation::own_timeline() const {
  if (own_timeline_) return *own_timeline_;
  throw Error(ErrorCode::kInvalidArgument, "a process set is traced in the job's timeline; start and stop that one");
}

/// Rank 0's, or everybody's where each has a file of its own.
void Engine::Implementation::start_own_timeline(const std::filesystem::path& path, bool mark_cycles,
                                                std::int64_t most_bytes) {
  const bool is_for_all = has_rank_mark(path);
  if (group_.rank() != 0 && !is_for_all) return;
  const group::Member& self = group_.topology().self();
  own_timeline_->start(file_of_rank(path, self.rank_in_job.value_or(self.rank)), mark_cycles, most_bytes);
  if (!is_for_all) return;
  std::string detail = fmt::format("host {} id {}", self.host_name, self.host_id);
  if (const auto offset = internal::clock_offset(group_, kLongestClockMeasurement)) {
    detail += fmt::format(" ahead {}", offset->count());
  }
  own_timeline_->add("gyre: clock", {.name = "CLOCK", .began = SteadyClock::now(), .detail = std::move(detail)});
}

/// The job goes on without one where its node has no place for it.
void Engine::Implementation::start_job_timeline(const JobTimeline& order) {
  const std::uint64_t share = order.most_bytes / static_cast<std::uint64_t>(group_.topology().local_size());
  std::error_code none;
  // A file of its own for a rank that starts again: whoever copies the old one finds that it is another.
  std::filesystem::remove(file_of_rank(order.path, group_.topology().self().rank_in_job.value_or(group_.rank())), none);
  try {
    start_own_timeline(order.path, options_.timeline_mark_cycles, static_cast<std::int64_t>(share));
  } catch (const Error& error) {
    logger_->warn("this rank writes no timeline: {}", error.what());
  }
}

void Engine::Implementation::shutdown() {
  const MutexLock lock(shutdown_mutex_);
  if (std::exchange(shut_down_, true)) return;
  plans_->shutdown();
  open_lane_->shutdown();
  if (own_timeline_) own_timeline_->stop();
}

Engine::Engine(group::Group& group, EngineOptions options, Logger logger, std::optional<TimelineRows> timeline)
    : implementation_(
          std::make_unique<Implementation>(group, std::move(options), std::move(logger), std::move(timeline))) {}
Engine::~Engine() = default;

Handle Engine::submit(Request request) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return implementation_->submit(std::move(requests)).front();
}

std::vector<Handle> Engine::submit_group(std::vector<Request> requests) {
  if (requests.empty()) return {};
  // Members carry the group's name: that of the first, which is unique among those in flight.
  const std::string group = requests.front().name;
  for (Request& request : requests) {
    if (!request.signature.expected_splits.empty()) {
      throw internal::invalid_request(request, "an all-to-all of a group cannot say what it expects of each rank");
    }
    request.signature.group = group;
    request.signature.group_size = static_cast<std::uint32_t>(requests.size());
  }
  return implementation_->submit(std::move(requests));
}

Result Engine::run(Request request) {
  const Handle handle = implementation_->run_or_submit(std::move(request));
  handle.wait();
  return handle.take_result();
}

Handle Engine::run_or_submit(Request request) { return implementation_->run_or_submit(std::move(request)); }

std::optional<std::uint64_t> Engine::wait_for_agreements(std::uint64_t count, std::chrono::milliseconds patience) {
  return implementation_->agreements().wait_for_more_than(count, patience);
}

void Engine::check_plan(const std::vector<PlanTensor>& tensors, const PlanOptions& options) {
  implementation_->check_plan(tensors, options);
}

std::unique_ptr<Plan> Engine::make_plan(std::vector<PlanTensor> tensors, const PlanOptions& options) {
  return implementation_->make_plan(std::move(tensors), options);
}

std::uint64_t Engine::next_exchange() { return implementation_->next_exchange(); }

std::unique_ptr<Join> Engine::begin_join(const JoinOptions& options) { return implementation_->begin_join(options); }

int Engine::join(const JoinOptions& options) {
  constexpr std::chrono::hours kPatience{1};
  const auto join = begin_join(options);
  while (!join->wait_for(kPatience)) {
  }
  return join->last_rank();
}

void Engine::shutdown() { implementation_->shutdown(); }

void Engine::start_timeline(const std::filesystem::path& path, bool mark_cycles) {
  implementation_->own_timeline();
  implementation_->start_own_timeline(path, mark_cycles);
}

void Engine::stop_timeline() { implementation_->own_timeline().stop(); }

bool Engine::timeline_runs() const { return implementation_->timeline_.enabled(); }

void Engine::add_to_timeline(std::string_view row, const PastPhase& phase) {
  implementation_->timeline_.add(row, phase);
}

TimelineRows Engine::timeline_of_process_set(std::string_view name) const {
  return implementation_->timeline_.of_process_set(name);
}

void Engine::note_this_thread() { implementation_->options_.waits->note_this_thread(); }

std::shared_ptr<void> Engine::act_for(const ThreadIdentity& caller) {
  return implementation_->options_.waits->act_for(caller);
}

EngineStatistics Engine::statistics() const { return implementation_->statistics(); }

group::Group& Engine::group() { return implementation_->group_; }
const EngineOptions& Engine::options() const { return implementation_->options_; }

}  // namespace gyre::engine
