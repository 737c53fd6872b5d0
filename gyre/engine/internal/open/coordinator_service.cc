#include "gyre/engine/internal/open/coordinator_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <ranges>
#include <set>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/random.h"
#include "gyre/base/thread.h"
#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/open/aggregator.h"

namespace gyre::engine::internal {

namespace {

constexpr const char* kAboutMissingRanks = "The missing ranks run other code, are slower, or wait for something else";
/// Of a circle of waits; a report must stay readable.
constexpr std::ptrdiff_t kMostWaitsShown = 6;
/// Between looks for a deadlock, at most: they come ever more rarely, but one may begin while an old wait goes on.
constexpr std::chrono::seconds kMostBetweenLooks{60};

std::uint64_t random_number() {
  std::array<std::byte, sizeof(std::uint64_t)> random;
  fill_with_secure_random(random);
  return ByteReader(random, "a random number").u64() | 1;  // Not 0, which stands for none.
}

/// "rank 3", "ranks 0, 2".
std::string format_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

CoordinatorOptions coordinator_options(const group::Group& group, const EngineOptions& options) {
  const group::Topology& topology = group.topology();
  CoordinatorOptions result{group.size(),
                            largest_bucket_bytes(options.fusion_bytes, topology.one_host()),
                            static_cast<int>(topology.hosts().size()),
                            {}};
  for (int rank = 0; rank < group.size(); ++rank) {
    result.rank_names.push_back(topology.member(rank).rank_in_job.value_or(rank));
  }
  return result;
}

}  // namespace

CoordinatorService::CoordinatorService(group::Group& group, std::vector<NegotiationChild> children,
                                       const EngineOptions& options, const TimelineRows& timeline, Logger logger)
    : group_(group),
      options_(options),
      timeline_(timeline),
      logger_(std::move(logger)),
      children_(std::move(children)),
      leaving_(static_cast<std::size_t>(group.size())),
      coordinator_(coordinator_options(group, options)),
      inquiry_(group.size()),
      engine_(random_number()) {
  thread_ = start_thread("the coordinator", [this] { run(); });
}

CoordinatorService::~CoordinatorService() {
  stopping_ = true;
  stop_.notify();
  thread_.join();
}

void CoordinatorService::run() {
  try {
    serve();
  } catch (const std::exception& error) {
    group_.abort(as_error(error).add_context("rank 0's coordinator failed"));
  }
}

void CoordinatorService::serve() {
  Order first;
  first.engine = engine_;
  send_to_all(first);
  for (;;) {
    const std::array others = {stop_.fd(), group_.abort_signal().fd()};
    poll_links(children_, nullptr, others, poll_timeout_ms());
    if (group_.abort_signal().triggered()) return;
    if (stopping_) {
      std::ranges::move(std::exchange(disputed_, {}), std::back_inserter(asked_));
      return refuse_with_places(std::exchange(asked_, {}));
    }
    for (NegotiationChild& child : children_) receive_from(child);
    send_orders();
    look_into_stalls();
  }
}

void CoordinatorService::receive_from(NegotiationChild& child) {
  // A rank that said goodbye may close its link; one that did not is the group's to report, which sees its death as
  // well.
  try {
    child.link.receive([&](const net::Message& message) { take_announcement(child, message); });
  } catch (const Error& error) {
    Error reason = error;
    throw reason.add_context(fmt::format("announcement of {}", group_.topology().describe(child.child.rank)));
  }
}

void CoordinatorService::take_announcement(NegotiationChild& child, const net::Message& message) {
  if (message.type != kAnnouncementMessage) {
    throw Error(ErrorCode::kProtocol, fmt::format("message of type {}", message.type));
  }
  AnnouncementContent content = child.decoder.decode(message.payload);
  check_speaker(child.child, content);
  const auto now = SteadyClock::now();
  for (Announced& announced : content.operations) {
    std::vector<int> ranks = announced.ranks.empty() ? child.child.ranks : std::move(announced.ranks);
    for (std::size_t i = 0; timeline_.enabled() && i < ranks.size(); ++i) {
      timeline_.instant(announced.name, fmt::format("{}", ranks[i]));
    }
    coordinator_.announce(std::move(ranks), std::move(announced), now);
  }
  for (RelayedNote& relayed : content.relayed) take_note(relayed.rank, std::move(relayed.note));
  if (!content.RankNote::empty()) take_note(child.child.rank, std::move(content));
}

void CoordinatorService::take_note(int rank, RankNote note) {
  for (const PlanStep& step : note.steps) coordinator_.begin_step(rank, step);
  for (DisputedRows& disputed : note.disputes) coordinator_.dispute(rank, std::move(disputed));
  if (note.join) coordinator_.join(rank, *note.join);
  if (note.stalled_step) note_stalled(std::move(*note.stalled_step));
  if (note.stall_answer) {
    // Which use of an operation's name it means: now it is the last that the rank has announced, later perhaps not.
    for (ThreadState& thread : note.stall_answer->state.threads) {
      for (Awaited& awaited : thread.waits) {
        const bool is_ours = !awaited.step && awaited.engine == engine_;
        if (is_ours) awaited.serial = coordinator_.arrival_of(rank, awaited.operation);
      }
    }
    inquiry_.answer(rank, std::move(*note.stall_answer));
  }
  if (note.leaving && !leaving_[static_cast<std::size_t>(rank)]) {
    leaving_[static_cast<std::size_t>(rank)] = true;
    coordinator_.depart(rank);
  }
}

void CoordinatorService::note_stalled(StalledStep stalled) {
  // Every rank that waits says so, each in its own time: the others mean what has been looked into.
  const auto is_known = [&](const std::map<std::uint64_t, StalledStep>& steps, std::chrono::milliseconds patience) {
    const auto found = steps.find(stalled.step.plan);
    return found != steps.end() && found->second.step == stalled.step &&
           stalled.waited < found->second.waited + patience;
  };
  const bool fatal = options_.stall_failure.count() > 0 && stalled.waited >= options_.stall_failure;
  const bool is_news = deserves_report(stalled) ? !is_known(reported_steps_, options_.stall_warning / 2)
                                                : !is_known(checked_steps_, options_.deadlock_check / 2);
  if (!fatal && !is_news) return;
  StalledStep& known = stalled_steps_[stalled.step.plan];
  if (known.step != stalled.step || stalled.waited >= known.waited) known = std::move(stalled);
}

void CoordinatorService::send_orders() {
  Order order = coordinator_.take_order();
  std::vector<Refusal> undisputed;
  for (Refusal& refusal : order.refusals) {
    (refusal.disagreement ? disputed_ : undisputed).push_back(std::move(refusal));
  }
  order.refusals = std::move(undisputed);
  if (!order.empty()) {
    timeline_.mark_cycle();
    send_to_all(order);
  }
  for (NegotiationChild& child : children_) child.link.flush();
}

void CoordinatorService::send_to_all(const Order& order) {
  const Bytes message = net::encode_message(kOrderMessage, encoder_.encode(order));
  for (NegotiationChild& child : children_) child.link.send(message);
}

int CoordinatorService::poll_timeout_ms() const {
  SteadyClock::time_point next = SteadyClock::time_point::max();
  const auto oldest = coordinator_.oldest_wait();
  if (inquiry_.is_open()) {
    next = inquiry_.deadline();
  } else if (oldest) {
    // The next moment at which a wait becomes reportable: first warning, repeated warning, or failure.
    if (options_.stall_warning.count() > 0) {
      next = std::max(*oldest + options_.stall_warning, last_stall_report_ + options_.stall_warning);
    }
    if (options_.stall_failure.count() > 0) next = std::min(next, *oldest + options_.stall_failure);
    if (const auto look = deadlock_look_at()) next = std::min(next, *look);
  }
  if (next == SteadyClock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

void CoordinatorService::look_into_stalls() {
  const auto now = SteadyClock::now();
  if (!inquiry_.is_open()) {
    if (disputed_.empty() && !stall_is_due(now)) return;
    asked_ = std::exchange(disputed_, {});
    ask_ranks();
  } else if (inquiry_.is_over(now)) {
    inquiry_.close();
    refuse_with_places(std::exchange(asked_, {}));
    if (proven_) return group_.abort(proven_->error());
    if (!end_deadlock() && !report_stalled_steps()) report_stalls();
  }
}

bool CoordinatorService::stall_is_due(SteadyClock::time_point now) const {
  if (!stalled_steps_.empty()) return true;
  const auto oldest = coordinator_.oldest_wait();
  if (!oldest) return false;
  if (options_.stall_failure.count() > 0 && now >= *oldest + options_.stall_failure) return true;
  if (const auto look = deadlock_look_at(); look && now >= *look) return true;
  return options_.stall_warning.count() > 0 && now >= *oldest + options_.stall_warning &&
         now >= last_stall_report_ + options_.stall_warning;
}

std::optional<SteadyClock::time_point> CoordinatorService::deadlock_look_at() const {
  const auto oldest = coordinator_.oldest_wait();
  const std::chrono::milliseconds first = options_.deadlock_check;
  if (!oldest || first.count() == 0) return std::nullopt;
  if (*oldest != looked_at_wait_) return *oldest + first;
  if (suspected_) return looked_at_ + first / 2;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(looked_at_ - *oldest);
  return looked_at_ + std::clamp(waited, first, std::max<std::chrono::milliseconds>(first, kMostBetweenLooks));
}

void CoordinatorService::ask_ranks() {
  std::vector<int> ranks;
  for (const NegotiationChild& child : children_) {
    if (child.link.is_gone()) continue;
    std::ranges::copy_if(child.child.ranks, std::back_inserter(ranks),
                         [&](int rank) { return !leaving_[static_cast<std::size_t>(rank)]; });
  }
  Order order;
  order.question = inquiry_.ask(std::move(ranks), SteadyClock::now());
  order.deadlock = proven_;
  send_to_all(order);
}

void CoordinatorService::refuse_with_places(std::vector<Refusal> refusals) {
  if (refusals.empty()) return;
  Order order;
  for (Refusal& refusal : refusals) {
    complete(refusal);
    order.refusals.push_back(std::move(refusal));
  }
  send_to_all(order);
}

void CoordinatorService::complete(Refusal& refusal) const {
  const Disagreement disagreement = *std::exchange(refusal.disagreement, std::nullopt);
  const std::string place = inquiry_.first_place_of({disagreement.ranks.front()});
  const bool all_there = !place.empty() && std::ranges::all_of(disagreement.ranks, [&](int rank) {
    return inquiry_.first_place_of({rank}) == place;
  });
  if (all_there) {  // It is the same call: the arguments differ.
    refusal.message += fmt::format("; {} are {}", format_ranks(names_of(disagreement.ranks)), place);
    return;
  }
  for (const int rank : disagreement.ranks) {
    const std::string own = inquiry_.first_place_of({rank});
    if (!own.empty()) refusal.message += fmt::format("; {} is {}", format_ranks(names_of({rank})), own);
  }
  if (!disagreement.advice.empty()) refusal.message += ". " + disagreement.advice;
}

std::vector<int> CoordinatorService::names_of(const std::vector<int>& ranks) const {
  std::vector<int> names;
  for (const int rank : ranks) names.push_back(group_.topology().member(rank).rank_in_job.value_or(rank));
  return names;
}

std::string CoordinatorService::describe_waiting(const std::vector<int>& ranks) const {
  const std::string place = inquiry_.first_place_of(ranks);
  return fmt::format("{}{}{}", format_ranks(names_of(ranks)), place.empty() ? "" : ", ", place);
}

std::string CoordinatorService::describe(const Stall& stall) const {
  const auto now = SteadyClock::now();
  std::vector<std::string> missing;
  for (const int rank : stall.missing_ranks) {
    const std::string place = inquiry_.place_of(rank);
    missing.push_back(fmt::format("{}, {}{}whose last was {}", group_.topology().describe(rank), place,
                                  place.empty() ? "" : ", ", coordinator_.last_announced(rank, now)));
  }
  return fmt::format("{} has waited {:.1f} s: ready on {}; missing: {}", describe_operation(stall.kind, stall.name),
                     static_cast<double>(stall.waited.count()) / 1000, describe_waiting(stall.ready_ranks),
                     fmt::join(missing, "; "));
}

std::string CoordinatorService::describe(const StalledStep& stalled, const std::vector<int>& waiting) const {
  std::vector<std::string> missing;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (std::find(waiting.begin(), waiting.end(), rank) != waiting.end()) continue;
    const std::string place = inquiry_.place_of(rank);
    missing.push_back(fmt::format("{}{}{}", group_.topology().describe(rank), place.empty() ? "" : ", ", place));
  }
  return fmt::format("step {} of gradient exchange '{}' has waited {:.1f} s for its end: on {}; missing: {}",
                     stalled.step.step + 1, stalled.plan_name, static_cast<double>(stalled.waited.count()) / 1000,
                     describe_waiting(waiting), fmt::join(missing, "; "));
}

bool CoordinatorService::deserves_report(const StalledStep& stalled) const {
  return options_.stall_warning.count() > 0 && stalled.waited >= options_.stall_warning;
}

bool CoordinatorService::end_deadlock() {
  const std::chrono::milliseconds first = options_.deadlock_check;
  const auto now = SteadyClock::now();
  const auto oldest = coordinator_.oldest_wait();
  const bool is_time = (oldest && now >= *oldest + first) || std::ranges::any_of(stalled_steps_, [&](const auto& step) {
                         return step.second.waited >= first;
                       });
  if (first.count() == 0 || !is_time) return false;
  looked_at_ = now;
  looked_at_wait_ = oldest.value_or(SteadyClock::time_point{});
  std::vector<IncompleteOperation> incomplete;
  for (Stall& stall : coordinator_.stalls(now, std::chrono::milliseconds{0})) {
    incomplete.push_back({std::move(stall.name), stall.arrival, std::move(stall.missing_ranks)});
  }
  const auto states = inquiry_.states();
  auto cycle = find_deadlock(states, engine_, incomplete, Assumption::kNothing);
  const bool proven = cycle && (!cycle->needs_confirmation || cycle == suspected_);
  if (proven) {
    end_job(*cycle);
  } else if (!cycle) {
    warn_of(find_deadlock(states, engine_, incomplete, Assumption::kUsualProgram));
  }
  suspected_ = std::move(cycle);
  return proven;
}

void CoordinatorService::warn_of(std::optional<CycleOfWaits> likely) {
  const bool is_news = likely && likely != warned_ && (!likely->needs_confirmation || likely == likely_);
  if (is_news) {
    logger_->warn(
        "stall: {}. Only a thread that may still bring this can release them: {}. If none does, the ranks wait {}",
        describe_waits(*likely), describe_running(*likely),
        options_.stall_failure.count() > 0
            ? fmt::format("until the limit of {} s", static_cast<double>(options_.stall_failure.count()) / 1000)
            : "for ever (GYRE_STALL_FAILURE_SECONDS limits it), and this is a deadlock");
    warned_ = likely;
  }
  likely_ = std::move(likely);
}

/// What runs on the ranks from which something is awaited.
std::string CoordinatorService::describe_running(const CycleOfWaits& cycle) const {
  const auto states = inquiry_.states();
  std::set<int> ranks;
  for (const CycleOfWaits::Wait& wait : cycle.waits) ranks.insert(wait.needed_ranks.begin(), wait.needed_ranks.end());
  std::vector<std::string> running;
  for (const int rank : ranks) {
    const auto& state = states[static_cast<std::size_t>(rank)];
    if (!state) continue;
    const bool known_runs =
        std::ranges::any_of(state->threads, [](const auto& thread) { return thread.waits.empty(); });
    std::vector<std::string> threads = state->strangers;
    if (known_runs) threads.insert(threads.begin(), "a thread that has used Gyre and runs");
    if (threads.empty()) continue;
    running.push_back(fmt::format("on {}, {}", format_ranks(names_of({rank})), fmt::join(threads, ", ")));
  }
  return fmt::format("{}", fmt::join(running, "; "));
}

void CoordinatorService::end_job(const CycleOfWaits& cycle) {
  std::set<std::uint64_t> engines;
  for (const CycleOfWaits::Wait& wait : cycle.waits) engines.insert(wait.awaited.engine);
  DeadlockReport report{{engines.begin(), engines.end()}, describe(cycle)};
  if (engines.size() == 1) return group_.abort(report.error());
  // When all ranks have answered, or will not, the group fails.
  proven_ = std::move(report);
  ask_ranks();
}

std::string CoordinatorService::describe_places(const std::vector<int>& ranks) const {
  std::vector<std::pair<std::string, std::vector<int>>> places;  // Most ranks are at the same one.
  for (const int rank : ranks) {
    std::string place = inquiry_.first_place_of({rank});
    const auto known = std::ranges::find(places, place, [](const auto& entry) { return entry.first; });
    if (known != places.end()) {
      known->second.push_back(rank);
    } else {
      places.emplace_back(std::move(place), std::vector{rank});
    }
  }
  if (places.size() == 1) return places[0].first.empty() ? std::string() : ", " + places[0].first;
  std::string text;
  for (const auto& [place, there] : places) {
    if (!place.empty()) text += fmt::format(", {} {}", format_ranks(names_of(there)), place);
  }
  return text;
}

std::string CoordinatorService::describe_waits(const CycleOfWaits& cycle) const {
  std::vector<std::string> waits;
  for (const CycleOfWaits::Wait& wait : cycle.waits | std::views::take(kMostWaitsShown)) {
    waits.push_back(fmt::format("{} wait{} for {}, which needs {}{}", format_ranks(names_of(wait.ranks)),
                                wait.ranks.size() == 1 ? "s" : "", wait.awaited.description,
                                format_ranks(names_of(wait.needed_ranks)), describe_places(wait.ranks)));
  }
  if (std::ssize(cycle.waits) > kMostWaitsShown)
    waits.push_back(fmt::format("and {} more", std::ssize(cycle.waits) - kMostWaitsShown));
  return fmt::format("{}", fmt::join(waits, "; "));
}

std::string CoordinatorService::describe(const CycleOfWaits& cycle) const {
  std::string text = "deadlock: " + describe_waits(cycle) + "; ";
  const bool with_step =
      std::ranges::any_of(cycle.waits, [](const auto& wait) { return wait.awaited.step.has_value(); });
  text +=
      "none of them can ever go on. Usual causes: an operation on some ranks only (evaluation, logging or saving on "
      "rank "
      "0 alone): call it on all ranks or on none; fewer batches on some ranks: give all the same number, or call "
      "join() "
      "where they have run out; ";
  if (with_step) {
    return text +
           "backward() skipped in this step (an empty batch, a loss that is not finite): let all ranks decide alike, "
           "or "
           "have that rank call optimizer.step() before any other operation, or pass end_in_backward=False to "
           "DistributedOptimizer and call such operations between backward() and step()";
  }
  return text +
         "the same operations in different orders: call them in one order, or give the ranks that need one a process "
         "set "
         "(torch.distributed: a group) of their own";
}

bool CoordinatorService::report_stalled_steps() {
  for (const auto& [plan, stalled] : std::exchange(stalled_steps_, {})) {
    const std::vector<int> waiting = inquiry_.waiting_for(stalled.step);
    if (waiting.empty()) continue;  // It has ended meanwhile.
    checked_steps_[plan] = stalled;
    const std::string text = describe(stalled, waiting);
    if (options_.stall_failure.count() > 0 && stalled.waited >= options_.stall_failure) {
      fail_stalled(text);
      return true;
    }
    if (!deserves_report(stalled)) continue;
    logger_->warn("stall: {}. {}", text, kAboutMissingRanks);
    reported_steps_[plan] = stalled;
  }
  return false;
}

void CoordinatorService::fail_stalled(const std::string& text) {
  group_.abort(Error(ErrorCode::kTimeout, fmt::format("{} (the limit is {} s)", text,
                                                      static_cast<double>(options_.stall_failure.count()) / 1000)));
}

void CoordinatorService::report_stalls() {
  const auto now = SteadyClock::now();
  if (options_.stall_failure.count() > 0) {
    const auto fatal = coordinator_.stalls(now, options_.stall_failure);
    if (!fatal.empty()) return fail_stalled(describe(fatal.front()));
  }
  if (options_.stall_warning.count() == 0 || now < last_stall_report_ + options_.stall_warning) return;
  const auto stalls = coordinator_.stalls(now, options_.stall_warning);
  if (stalls.empty()) return;
  last_stall_report_ = now;
  constexpr std::size_t kMostReported = 10;
  for (std::size_t i = 0; i < std::min(stalls.size(), kMostReported); ++i) {
    logger_->warn("stall: {}. {}", describe(stalls[i]), kAboutMissingRanks);
  }
  if (stalls.size() > kMostReported) logger_->warn("stall: and {} more operations", stalls.size() - kMostReported);
}

}  // namespace gyre::engine::internal
