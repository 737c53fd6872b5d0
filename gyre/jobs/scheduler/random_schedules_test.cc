// What must hold in every schedule, whatever comes in whatever order: checked at every step of random ones, each with
// its seed; 100,000 of them with `./dev test --long`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"
#include "gyre/jobs/scheduler/explain.h"
#include "gyre/jobs/scheduler/internal/pass.h"
#include "gyre/jobs/scheduler/state_test_support.h"

namespace gyre::jobs::scheduler {
namespace {

constexpr std::uint64_t kSchedules = 2'000;
constexpr std::uint64_t kSchedulesOfALongRun = 100'000;
constexpr Time kForEver = Time::max();

std::uint64_t schedules() { return is_long_test() ? kSchedulesOfALongRun : kSchedules; }

/// What the world does; the scheduler sees only its State.
struct Simulation {
  Random random;
  bool faulty;  ///< Nodes are lost, clusters resized, limits missed, and cleaning takes time.
  World world{};
  std::multimap<Time, Job> arrivals{};
  std::map<NodeId, Time> ready_at{};    ///< Of preparing nodes.
  std::map<JobId, Time> clean_at{};     ///< Of ending jobs.
  std::map<JobId, bool> comes_back{};   ///< Of ending jobs: queued again, or ended for good.
  std::map<JobId, Time> natural_end{};  ///< Of running jobs.
  std::map<JobId, int> ends{};
  /// When a head would have started without any backfill since it became a head.
  std::map<JobId, Time> promised{};
  std::vector<Time> fault_times{};

  Simulation(std::uint64_t seed, bool with_faults) : random(seed), faulty(with_faults) { make_world(); }

  int number(int low, int high) {
    const int count = high - low + 1;
    return low + static_cast<int>(random.below(static_cast<std::uint64_t>(count)));
  }
  bool one_in(int n) { return number(1, n) == 1; }
  State& state() { return world.state; }

  void make_world();
  void make_jobs();
  void run();
  void let_happen_what_is_due();
  void end_attempt(JobId id);
  void fault();
  void decide_until_quiet();
  void check_starts(const State& before, const std::vector<Decision>& decisions);
  void check_order(const State& before, const std::vector<Decision>& decisions);
  void check_after(const std::vector<Decision>& decisions);
  void update_promises(const State& without_backfill);
  Time start_without_backfill(const State& from, const Job& head) const;
  void carry_out(const std::vector<Decision>& decisions);
  std::optional<Time> next_event() const;
};

const Cluster& cluster_of(const State& state, const Job& job) {
  return *std::ranges::find(state.clusters, job.cluster, &Cluster::id);
}

int cores_of(const State& state, const Job& job) { return job.node_count * cluster_of(state, job).cores_per_node; }

const Quota* quota_of(const State& state, const Job& job) {
  for (const Quota& quota : state.quotas) {
    if (quota.workspace == job.workspace && quota.node_priority == cluster_of(state, job).node_priority) return &quota;
  }
  return nullptr;
}

bool can_ever_start(const State& state, const Job& job) {
  const auto& scale = cluster_of(state, job).scale;
  const auto* manual = std::get_if<ManualScale>(&scale);
  const int limit = manual != nullptr ? manual->target_node_count : std::get<AutoScale>(scale).maximum_node_count;
  const Quota* quota = quota_of(state, job);
  return job.node_count <= limit && (quota == nullptr || cores_of(state, job) <= quota->cores);
}

bool share(const State& state, const Job& a, const Job& b) {
  return a.cluster == b.cluster || (quota_of(state, a) != nullptr && quota_of(state, a) == quota_of(state, b));
}

bool ahead(const Job& a, const Job& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.sequence < b.sequence;
}

void Simulation::make_world() {
  state().clusters.clear();
  const int clusters = number(1, 3);
  for (int i = 0; i < clusters; ++i) {
    const int nodes = number(1, 8);
    const ClusterId id = world.add_cluster(nodes, number(1, 4));
    Cluster& cluster = world.cluster(id);
    if (one_in(3)) cluster.node_priority = NodePriority::kLowPriority;
    if (faulty && one_in(4)) cluster.scale = AutoScale{.minimum_node_count = number(0, 2), .maximum_node_count = nodes};
  }
  for (Node& node : state().nodes) {
    if (!one_in(8)) continue;
    node.state = NodeReadiness::kPreparing;
    ready_at[node.id] = Time(number(1, 60));
  }
  for (const std::string workspace : {"w", "v"}) {
    if (one_in(2)) state().quotas.push_back({workspace, NodePriority::kDedicated, number(1, 20)});
    if (one_in(4)) state().quotas.push_back({workspace, NodePriority::kLowPriority, number(1, 20)});
  }
  make_jobs();
  for (int i = faulty ? number(1, 6) : 0; i > 0; --i) fault_times.push_back(Time(number(1, 100)));
}

void Simulation::make_jobs() {
  Time now{};
  for (JobId id = 1, last = number(2, 25); id <= last; ++id) {
    now += Time(one_in(3) ? number(1, 15) : 0);
    const auto cluster = static_cast<ClusterId>(number(1, static_cast<int>(state().clusters.size())));
    arrivals.emplace(now, Job{.id = id,
                              .name = "j" + std::to_string(id),
                              .workspace = one_in(2) ? "w" : "v",
                              .cluster = cluster,
                              .priority = static_cast<Priority>(number(0, 2)),
                              .sequence = id,
                              .node_count = one_in(2) ? 1 : number(1, 8),
                              .wall_clock_limit = Time(number(1, 40))});
  }
}

std::optional<Time> Simulation::next_event() const {
  Time next = kForEver;
  const auto consider = [&](Time when) { next = when > world.state.now ? std::min(next, when) : next; };
  for (const auto& [when, job] : arrivals) consider(when);
  for (const auto& [node, when] : ready_at) consider(when);
  for (const auto& [job, when] : clean_at) consider(when);
  for (const auto& [job, when] : natural_end) consider(when);
  for (const RunningJob& running : world.state.running) consider(running.started + running.job.wall_clock_limit);
  for (const Time when : fault_times) consider(when);
  return next == kForEver ? std::nullopt : std::optional(next);
}

void Simulation::end_attempt(JobId id) {
  const Job job = world.take_off(id);
  natural_end.erase(id);
  clean_at.erase(id);
  if (comes_back[id]) {
    state().waiting.push_back(job);
  } else {
    ++ends[id];
  }
  comes_back.erase(id);
}

void Simulation::let_happen_what_is_due() {
  const Time now = state().now;
  for (auto next = arrivals.begin(); next != arrivals.end() && next->first <= now; next = arrivals.erase(next)) {
    state().waiting.push_back(next->second);
    // Whoever it stands before is not a head any more, until it has started.
    std::erase_if(promised, [&](const auto& entry) {
      const Job* head = world.waiting(entry.first);
      return head != nullptr && ahead(next->second, *head) && share(state(), next->second, *head);
    });
  }
  for (Node& node : state().nodes) {
    if (node.state == NodeReadiness::kPreparing && ready_at[node.id] <= now) node.state = NodeReadiness::kReady;
  }
  std::erase_if(ready_at, [&](const auto& entry) { return entry.second <= now; });
  std::vector<JobId> over;
  for (const auto& [job, when] : clean_at) {
    if (when <= now) over.push_back(job);
  }
  for (const auto& [job, when] : natural_end) {
    if (when <= now && !world.running(job)->ending) over.push_back(job);
  }
  for (const JobId job : over) end_attempt(job);
  if (std::erase(fault_times, now) > 0) fault();
}

void Simulation::fault() {
  Cluster& cluster = world.cluster(number(1, static_cast<int>(state().clusters.size())));
  if (one_in(2) || std::holds_alternative<AutoScale>(cluster.scale)) {
    if (state().nodes.empty()) return;
    Node& node = state().nodes[random.below(state().nodes.size())];
    if (one_in(2)) {
      node.state = NodeReadiness::kLost;
    } else {
      std::erase_if(state().nodes, [&, id = node.id](const Node& other) { return other.id == id; });
    }
    return;
  }
  cluster.scale =
      ManualScale{.target_node_count = number(0, 8), .deallocation = static_cast<Deallocation>(number(0, 2))};
}

void Simulation::check_starts(const State& before, const std::vector<Decision>& decisions) {
  std::set<NodeId> busy;
  for (const RunningJob& running : before.running) busy.insert(running.nodes.begin(), running.nodes.end());
  for (const ReleaseNode& release : actions_of<ReleaseNode>(decisions)) {
    ASSERT_FALSE(busy.contains(release.node)) << "a node is released under a job";
    busy.insert(release.node);
  }
  std::map<const Quota*, int> used;
  for (const RunningJob& running : before.running) used[quota_of(before, running.job)] += cores_of(before, running.job);
  for (const StartJob& start : actions_of<StartJob>(decisions)) {
    const Job& job = *std::ranges::find(before.waiting, start.job, &Job::id);
    ASSERT_EQ(static_cast<int>(start.nodes.size()), job.node_count) << "a part of a gang";
    ASSERT_EQ(start.attempt, job.attempts + 1);
    for (const NodeId id : start.nodes) {
      const auto node = std::ranges::find(before.nodes, id, &Node::id);
      ASSERT_TRUE(node != before.nodes.end() && node->state == NodeReadiness::kReady && node->cluster == job.cluster);
      ASSERT_TRUE(busy.insert(id).second) << "two jobs on node " << id;
    }
    const Quota* quota = quota_of(before, job);
    used[quota] += cores_of(before, job);
    ASSERT_TRUE(quota == nullptr || used[quota] <= quota->cores) << "beyond the quota";
  }
}

/// Nobody who could ever start is overtaken at his own queue or quota, except by what is called backfill.
void Simulation::check_order(const State& before, const std::vector<Decision>& decisions) {
  std::set<JobId> started;
  for (const StartJob& start : actions_of<StartJob>(decisions)) started.insert(start.job);
  for (const Decision& decision : decisions) {
    const auto* start = std::get_if<StartJob>(&decision.action);
    if (start == nullptr) continue;
    const Job& job = *std::ranges::find(before.waiting, start->job, &Job::id);
    const bool overtakes = std::ranges::any_of(before.waiting, [&](const Job& other) {
      return !started.contains(other.id) && ahead(other, job) && share(before, other, job) &&
             can_ever_start(before, other);
    });
    ASSERT_EQ(overtakes, decision.reason == Reason::kBackfill) << "job " << job.id;
  }
}

/// Knows what the scheduler does not: when nodes will be ready. Needs exact limits.
Time Simulation::start_without_backfill(const State& from, const Job& head) const {
  std::set<Time> moments = {from.now};
  for (const auto& [node, when] : ready_at) moments.insert(std::max(when, from.now));
  for (const RunningJob& running : from.running) moments.insert(running.started + running.job.wall_clock_limit);
  const Quota* quota = quota_of(from, head);
  for (const Time when : moments) {
    int nodes = 0;
    int cores = quota == nullptr ? 0 : quota->cores;
    for (const Node& node : from.nodes) {
      const auto ready = ready_at.find(node.id);
      nodes += node.cluster == head.cluster && (ready == ready_at.end() || ready->second <= when) ? 1 : 0;
    }
    for (const RunningJob& running : from.running) {
      if (running.started + running.job.wall_clock_limit <= when) continue;
      if (running.job.cluster == head.cluster) nodes -= running.job.node_count;
      if (quota != nullptr && quota_of(from, running.job) == quota) cores -= cores_of(from, running.job);
    }
    if (nodes >= head.node_count && (quota == nullptr || cores >= cores_of(from, head))) return when;
  }
  return kForEver;
}

void Simulation::update_promises(const State& without_backfill) {
  const std::vector<Job>& waiting = without_backfill.waiting;
  for (const Job& job : waiting) {
    if (!can_ever_start(without_backfill, job)) continue;
    const bool is_head = std::ranges::none_of(waiting, [&](const Job& other) {
      return ahead(other, job) && share(without_backfill, other, job) && can_ever_start(without_backfill, other);
    });
    if (!is_head) continue;
    const Time when = start_without_backfill(without_backfill, job);
    const auto known = promised.find(job.id);
    promised[job.id] = known == promised.end() ? when : std::min(known->second, when);
  }
}

void Simulation::carry_out(const std::vector<Decision>& decisions) {
  for (const Decision& decision : decisions) {
    const auto* requeue = std::get_if<RequeueJob>(&decision.action);
    const auto* terminate = std::get_if<TerminateJob>(&decision.action);
    if (requeue == nullptr && terminate == nullptr) {
      std::visit([this](const auto& action) { world.apply(action); }, decision.action);
      if (const auto* start = std::get_if<StartJob>(&decision.action)) {
        const Time limit = world.running(start->job)->job.wall_clock_limit;
        natural_end[start->job] = state().now + (faulty ? Time(number(1, 50)) : limit);
      }
      continue;
    }
    const JobId job = requeue != nullptr ? requeue->job : terminate->job;
    ASSERT_NE(world.running(job), nullptr);
    ASSERT_FALSE(world.running(job)->ending) << "job " << job << " is ended twice";
    world.running(job)->ending = true;
    comes_back[job] = requeue != nullptr;
    clean_at[job] = state().now + Time(faulty ? number(0, 5) : 0);
  }
  for (const Node& node : state().nodes) {
    if (node.state == NodeReadiness::kPreparing && !ready_at.contains(node.id))
      ready_at[node.id] = state().now + Time(number(1, 9));
  }
}

void Simulation::check_after(const std::vector<Decision>& decisions) {
  ASSERT_TRUE(decide(state()).empty()) << "the same State is not at rest after " << decisions.size() << " decisions";
  for (const Job& job : state().waiting) {
    if (!one_in(20)) continue;
    const auto why = explain(job.id, state());
    ASSERT_TRUE(why && why->reason != WaitReason::kStartsNow && !why->text.empty());
    if (!why->startable_node_count) continue;
    World other = world;
    other.waiting(job.id)->node_count = *why->startable_node_count;
    ASSERT_THAT(other.started_by_step(), testing::Contains(job.id)) << why->text;
  }
}

void Simulation::decide_until_quiet() {
  for (int round = 0; round < 100; ++round) {
    let_happen_what_is_due();
    const State before = state();
    const std::vector<Decision> decisions = decide(before);
    State shuffled = before;
    std::ranges::reverse(shuffled.waiting);
    std::ranges::reverse(shuffled.nodes);
    std::ranges::reverse(shuffled.running);
    ASSERT_EQ(decide(shuffled), decisions) << "the order of the State matters";
    const Line line(before.waiting);
    ASSERT_EQ(Pass(before, line, Extent::kAll).decisions(), decisions) << "a job that was passed over matters";
    ASSERT_NO_FATAL_FAILURE(check_starts(before, decisions));
    ASSERT_NO_FATAL_FAILURE(check_order(before, decisions));
    if (!faulty) {
      World without_backfill = world;
      for (const Decision& decision : decisions) {
        const auto* start = std::get_if<StartJob>(&decision.action);
        if (start == nullptr) continue;
        const auto promise = promised.find(start->job);
        ASSERT_TRUE(promise == promised.end() || before.now <= promise->second)
            << "head " << start->job << " was delayed";
        if (decision.reason != Reason::kBackfill) without_backfill.apply(*start);
      }
      update_promises(without_backfill.state);
    }
    ASSERT_NO_FATAL_FAILURE(carry_out(decisions));
    ASSERT_NO_FATAL_FAILURE(check_after(decisions));
    if (decisions.empty()) return;
  }
  FAIL() << "no end of decisions";
}

void Simulation::run() {
  const std::size_t jobs = arrivals.size();
  ASSERT_NO_FATAL_FAILURE(decide_until_quiet());
  while (const auto next = next_event()) {
    ASSERT_LT(*next, Time(100'000)) << "no end";
    state().now = *next;
    ASSERT_NO_FATAL_FAILURE(decide_until_quiet());
  }
  ASSERT_TRUE(state().running.empty());
  for (const auto& [job, count] : ends) ASSERT_EQ(count, 1) << "job " << job << " ended more than once";
  for (const Job& job : state().waiting)
    ASSERT_FALSE(can_ever_start(state(), job)) << "job " << job.id << " was forgotten";
  ASSERT_EQ(ends.size() + state().waiting.size(), jobs);
}

void run_all(std::uint64_t first, bool faulty) {
  for (std::uint64_t seed = first; seed < first + schedules() / 2; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, faulty);
    simulation.run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(RandomSchedulesTest, heads_are_never_delayed_and_every_job_ends_once) { run_all(first_case_of_day(), false); }

TEST(RandomSchedulesTest, every_job_ends_once_though_nodes_vanish_and_clusters_are_resized) {
  run_all(first_case_of_day() + 500'000, true);
}

}  // namespace
}  // namespace gyre::jobs::scheduler
