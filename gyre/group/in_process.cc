#include "gyre/group/in_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/group/internal/group_state.h"
#include "gyre/group/internal/tolerated.h"

namespace gyre::group {
namespace {

/// Where the groups of one process meet. Thread-safe.
class Hub {
 public:
  explicit Hub(std::vector<Member> members)
      : members_(std::move(members)),
        signals_(members_.size()),
        exited_(static_cast<int>(members_.size())),
        subgroup_exits_(static_cast<int>(members_.size())) {}

  const std::vector<Member>& members() const { return members_; }
  AbortSignal& abort_signal(int rank) { return signals_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<net::Stream> open_link(const Topology& topology, int peer, std::uint64_t channel, Deadline deadline)
      GYRE_EXCLUDES(mutex_);
  std::unique_ptr<net::Stream> connect(const Topology& topology, int peer, std::uint64_t channel) GYRE_EXCLUDES(mutex_);
  void accept(int rank, std::uint64_t channel, Group::LinkSink sink) GYRE_EXCLUDES(mutex_);
  /// `ranks`: those who share, ascending.
  std::shared_ptr<net::Segment> share_segment(const Topology& topology, const std::vector<int>& ranks,
                                              std::uint64_t channel, std::size_t size_bytes, Deadline deadline)
      GYRE_EXCLUDES(mutex_);
  std::vector<UniqueFd> exchange_descriptors(const Topology& topology, const std::vector<int>& ranks,
                                             std::uint64_t channel, int own, Deadline deadline) GYRE_EXCLUDES(mutex_);
  void abort(int rank, const Error& reason) GYRE_EXCLUDES(mutex_);
  void leave(int rank) GYRE_EXCLUDES(mutex_);
  bool has_left(int rank) const { return exited_.has_left(rank); }
  bool was_lost(int rank) const { return exited_.was_lost(rank); }
  void tolerate_losses(const std::vector<int>& ranks) GYRE_EXCLUDES(mutex_);
  int exit_count() const { return exited_.count(); }
  void leave_subgroup(int rank, std::uint64_t subgroup) GYRE_EXCLUDES(mutex_);
  std::shared_ptr<const ExitedRanks> subgroup_exits(std::uint64_t subgroup) GYRE_EXCLUDES(mutex_);
  void wait_for_cause(int rank, int peer, std::uint64_t subgroup, Deadline deadline) GYRE_EXCLUDES(mutex_);

 private:
  using LinkKey = std::tuple<int, int, std::uint64_t>;  // Higher rank, lower rank, channel.

  using SinkKey = std::pair<int, std::uint64_t>;                 // Who accepts, channel.
  using Waiting = std::pair<int, std::unique_ptr<net::Stream>>;  // Who has connected, the other's end.

  /// A segment while its ranks gather.
  struct Gathering {
    std::shared_ptr<net::Segment> segment;
    std::size_t size_bytes = 0;
    int arrived = 0;
    bool complete = false;
    std::optional<Error> failure;
  };
  using SegmentKey = std::pair<int, std::uint64_t>;  // The lowest of the ranks that share, channel.

  /// Copies of the descriptors of some ranks, by their order.
  struct Collection {
    std::vector<UniqueFd> descriptors;
    std::size_t missing = 0;
  };

  std::shared_ptr<Gathering> arrive(const Topology& topology, const std::vector<int>& ranks, std::uint64_t channel,
                                    std::size_t size_bytes) GYRE_REQUIRES(mutex_);
  /// False when the deadline passed. Throws when this rank's group has failed.
  bool wait(int rank, Deadline deadline) GYRE_REQUIRES(mutex_);
  /// From the group, or from the subgroup (0: none).
  bool is_gone(int rank, std::uint64_t subgroup) GYRE_REQUIRES(mutex_) {
    return has_left(rank) || (subgroup != 0 && subgroup_exits_.of(subgroup)->has_left(rank));
  }
  void throw_if_left(const Topology& topology, int peer, std::uint64_t channel) GYRE_REQUIRES(mutex_);
  void mark(int rank, bool lost) GYRE_REQUIRES(mutex_);

  const std::vector<Member> members_;
  std::vector<AbortSignal> signals_;
  ExitedRanks exited_;
  Mutex mutex_;
  std::set<int> may_be_lost_ GYRE_GUARDED_BY(mutex_);
  SubgroupExits subgroup_exits_ GYRE_GUARDED_BY(mutex_);
  ConditionVariable changed_;
  std::map<LinkKey, std::unique_ptr<net::Stream>> offered_links_ GYRE_GUARDED_BY(mutex_);
  std::map<SinkKey, std::shared_ptr<const Group::LinkSink>> sinks_ GYRE_GUARDED_BY(mutex_);
  std::map<SinkKey, std::vector<Waiting>> direct_links_ GYRE_GUARDED_BY(mutex_);  // That nobody has accepted yet.
  std::map<SegmentKey, std::shared_ptr<Gathering>> gatherings_ GYRE_GUARDED_BY(mutex_);
  std::map<SegmentKey, std::shared_ptr<Collection>> collections_ GYRE_GUARDED_BY(mutex_);
};

bool Hub::wait(int rank, Deadline deadline) {
  if (deadline.passed()) return false;
  if (deadline.when()) {
    changed_.wait_until(mutex_, *deadline.when());
  } else {
    changed_.wait(mutex_);
  }
  abort_signal(rank).throw_if_triggered();
  return true;
}

void Hub::throw_if_left(const Topology& topology, int peer, std::uint64_t channel) {
  if (!is_gone(peer, subgroup_of(channel))) return;
  throw peer_left(topology, peer, was_lost(peer));
}

std::unique_ptr<net::Stream> Hub::open_link(const Topology& topology, int peer, std::uint64_t channel,
                                            Deadline deadline) {
  const int rank = topology.rank();
  const MutexLock lock(mutex_);
  abort_signal(rank).throw_if_triggered();
  if (rank > peer) {
    throw_if_left(topology, peer, channel);
    auto [ours, theirs] = net::make_stream_pair({topology.describe(peer), topology.describe(rank)});
    offered_links_[{rank, peer, channel}] = std::move(theirs);
    changed_.notify_all();
    return std::move(ours);
  }
  const LinkKey key{peer, rank, channel};
  while (!offered_links_.contains(key)) {
    throw_if_left(topology, peer, channel);
    if (wait(rank, deadline)) continue;
    throw Error(ErrorCode::kTimeout, fmt::format("{} did not open its end of link channel {} to rank {} in time",
                                                 topology.describe(peer), channel, rank));
  }
  return std::move(offered_links_.extract(key).mapped());
}

std::unique_ptr<net::Stream> Hub::connect(const Topology& topology, int peer, std::uint64_t channel) {
  const int rank = topology.rank();
  auto [ours, theirs] = net::make_stream_pair({topology.describe(peer), topology.describe(rank)});
  std::shared_ptr<const Group::LinkSink> sink;
  {
    const MutexLock lock(mutex_);
    abort_signal(rank).throw_if_triggered();
    throw_if_left(topology, peer, channel);
    const auto found = sinks_.find({peer, channel});
    if (found != sinks_.end()) sink = found->second;
    if (!sink) direct_links_[{peer, channel}].emplace_back(rank, std::move(theirs));
  }
  if (sink && *sink) (*sink)(rank, std::move(theirs));
  return std::move(ours);
}

void Hub::accept(int rank, std::uint64_t channel, Group::LinkSink sink) {
  const auto shared = std::make_shared<const Group::LinkSink>(std::move(sink));
  std::vector<Waiting> waiting;
  {
    const MutexLock lock(mutex_);
    sinks_[{rank, channel}] = shared;
    if (const auto found = direct_links_.find({rank, channel}); found != direct_links_.end()) {
      waiting = std::move(direct_links_.extract(found).mapped());
    }
  }
  if (!*shared) return;
  for (auto& [peer, link] : waiting) (*shared)(peer, std::move(link));
}

std::shared_ptr<Hub::Gathering> Hub::arrive(const Topology& topology, const std::vector<int>& ranks,
                                            std::uint64_t channel, std::size_t size_bytes) {
  auto& gathering = gatherings_[{ranks.front(), channel}];
  if (!gathering) {
    gathering = std::make_shared<Gathering>();
    gathering->size_bytes = size_bytes;
    // One mapping for all threads, so that a thread sanitizer sees what they share.
    gathering->segment = net::Segment::create(size_bytes);
  }
  if (gathering->size_bytes != size_bytes) {
    gathering->failure =
        Error(ErrorCode::kMismatch,
              fmt::format("ranks of host {} want segment {} with {} and with {} bytes; all must "
                          "ask for the same size (rank {} asked last)",
                          topology.self().host_name, channel, gathering->size_bytes, size_bytes, topology.rank()));
  }
  ++gathering->arrived;
  gathering->complete = gathering->arrived == static_cast<int>(ranks.size());
  return gathering;
}

std::shared_ptr<net::Segment> Hub::share_segment(const Topology& topology, const std::vector<int>& ranks,
                                                 std::uint64_t channel, std::size_t size_bytes, Deadline deadline) {
  const int rank = topology.rank();
  const MutexLock lock(mutex_);
  abort_signal(rank).throw_if_triggered();
  const auto gathering = arrive(topology, ranks, channel, size_bytes);
  changed_.notify_all();
  if (gathering->complete) gatherings_.erase({ranks.front(), channel});
  try {
    while (!gathering->complete && !gathering->failure) {
      for (const int peer : ranks) throw_if_left(topology, peer, channel);
      if (wait(rank, deadline)) continue;
      throw Error(ErrorCode::kTimeout,
                  fmt::format("only {} of {} ranks of host {} asked for segment {} in time", gathering->arrived,
                              ranks.size(), topology.self().host_name, channel));
    }
  } catch (const Error&) {
    --gathering->arrived;
    throw;
  }
  if (gathering->failure) throw *gathering->failure;
  return gathering->segment;
}

/// Empty where this process has no room for one more.
UniqueFd copy_of(int descriptor) {
  UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy && errno != EMFILE) throw system_error("copying a descriptor", errno);
  return copy;
}

std::vector<UniqueFd> Hub::exchange_descriptors(const Topology& topology, const std::vector<int>& ranks,
                                                std::uint64_t channel, int own, Deadline deadline) {
  const int rank = topology.rank();
  const MutexLock lock(mutex_);
  abort_signal(rank).throw_if_triggered();
  auto& known = collections_[{ranks.front(), channel}];
  if (!known) known = std::make_shared<Collection>(Collection{std::vector<UniqueFd>(ranks.size()), ranks.size()});
  const std::shared_ptr<Collection> collection = known;
  const auto place = static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
  collection->descriptors.at(place) = copy_of(own);
  if (--collection->missing == 0) {
    collections_.erase({ranks.front(), channel});
    changed_.notify_all();
  }
  try {
    while (collection->missing > 0) {
      for (const int peer : ranks) throw_if_left(topology, peer, channel);
      if (wait(rank, deadline)) continue;
      throw Error(ErrorCode::kTimeout,
                  fmt::format("{} of {} ranks of host {} did not hand over their descriptors in time",
                              collection->missing, ranks.size(), topology.self().host_name));
    }
  } catch (const Error&) {
    ++collection->missing;  // This rank takes its part back.
    collection->descriptors.at(place).reset();
    throw;
  }
  std::vector<UniqueFd> copies(ranks.size());
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    const UniqueFd& theirs = collection->descriptors[other];
    if (other != place && theirs) copies[other] = copy_of(theirs.get());
  }
  return copies;
}

void Hub::tolerate_losses(const std::vector<int>& ranks) {
  const MutexLock lock(mutex_);
  may_be_lost_.insert(ranks.begin(), ranks.end());
}

void Hub::abort(int own_rank, const Error& reason) {
  const MutexLock lock(mutex_);
  if (may_be_lost_.contains(own_rank) && is_tolerated(reason.code())) {
    if (has_left(own_rank)) return;
    abort_signal(own_rank).trigger(reason);
    return mark(own_rank, true);
  }
  // A rank that left is no longer concerned.
  for (std::size_t rank = 0; rank < signals_.size(); ++rank) {
    if (!has_left(static_cast<int>(rank))) signals_[rank].trigger(reason);
  }
  changed_.notify_all();
}

void Hub::leave(int rank) {
  const MutexLock lock(mutex_);
  mark(rank, false);
}

void Hub::mark(int rank, bool lost) {
  if (!exited_.mark(rank, lost)) return;
  for (const AbortSignal& signal : signals_) signal.wake_waiters();
  changed_.notify_all();
}

void Hub::leave_subgroup(int rank, std::uint64_t subgroup) {
  const MutexLock lock(mutex_);
  if (!subgroup_exits_.of(subgroup)->mark(rank)) return;
  for (const AbortSignal& signal : signals_) signal.wake_waiters();
  changed_.notify_all();
}

std::shared_ptr<const ExitedRanks> Hub::subgroup_exits(std::uint64_t subgroup) {
  const MutexLock lock(mutex_);
  return subgroup_exits_.of(subgroup);
}

void Hub::wait_for_cause(int rank, int peer, std::uint64_t subgroup, Deadline deadline) {
  const MutexLock lock(mutex_);
  while (!abort_signal(rank).triggered() && !is_gone(peer, subgroup) && !deadline.passed()) {
    changed_.wait_until(mutex_, *deadline.when());
  }
}

class InProcessGroup final : public Group {
 public:
  InProcessGroup(std::shared_ptr<Hub> hub, int own_rank)
      : hub_(std::move(hub)), topology_(hub_->members(), own_rank), exceptions_at_start_(std::uncaught_exceptions()) {}

  ~InProcessGroup() override {
    if (!has_left(topology_.rank()) && std::uncaught_exceptions() > exceptions_at_start_) {
      abort(Error(ErrorCode::kAborted, fmt::format("{} was stopped by an exception before it left the group",
                                                   topology_.describe(topology_.rank()))));
    }
    hub_->leave(topology_.rank());
  }

  const Topology& topology() const override { return topology_; }
  AbortSignal& abort_signal() override { return hub_->abort_signal(topology_.rank()); }

  std::unique_ptr<net::Stream> open_link(int peer, std::uint64_t channel, Deadline deadline) override {
    GYRE_CHECK(peer != topology_.rank());
    throw_if_left_ourselves();
    return hub_->open_link(topology_, peer, channel, deadline);
  }

  std::unique_ptr<net::Stream> connect(int peer, std::uint64_t channel, Deadline /*deadline*/) override {
    GYRE_CHECK(peer != topology_.rank());
    throw_if_left_ourselves();
    return hub_->connect(topology_, peer, channel);
  }

  void accept(std::uint64_t channel, LinkSink sink) override {
    hub_->accept(topology_.rank(), channel, std::move(sink));
  }

  std::shared_ptr<net::Segment> share_segment(std::uint64_t channel, std::size_t size_bytes,
                                              Deadline deadline) override {
    return share_segment_among(topology_.local_ranks(), channel, size_bytes, deadline);
  }

  std::shared_ptr<net::Segment> share_segment_among(const std::vector<int>& ranks, std::uint64_t channel,
                                                    std::size_t size_bytes, Deadline deadline) override {
    throw_if_left_ourselves();
    return hub_->share_segment(topology_, ranks, channel, size_bytes, deadline);
  }

  std::vector<UniqueFd> exchange_descriptors(std::uint64_t channel, int own, Deadline deadline) override {
    return exchange_descriptors_among(topology_.local_ranks(), channel, own, deadline);
  }

  std::vector<UniqueFd> exchange_descriptors_among(const std::vector<int>& ranks, std::uint64_t channel, int own,
                                                   Deadline deadline) override {
    throw_if_left_ourselves();
    return hub_->exchange_descriptors(topology_, ranks, channel, own, deadline);
  }

  void abort(const Error& reason) override { hub_->abort(topology_.rank(), reason); }
  void leave() override { hub_->leave(topology_.rank()); }
  bool has_left(int rank) const override { return hub_->has_left(rank); }
  bool was_lost(int rank) const override { return hub_->was_lost(rank); }
  void tolerate_losses(const std::vector<int>& ranks) override {
    GYRE_CHECK(topology_.rank() == 0);
    hub_->tolerate_losses(ranks);
  }
  int exit_count() const override { return hub_->exit_count(); }
  void leave_subgroup(std::uint64_t subgroup) override { hub_->leave_subgroup(topology_.rank(), subgroup); }
  std::shared_ptr<const ExitedRanks> subgroup_exits(std::uint64_t subgroup) override {
    return hub_->subgroup_exits(subgroup);
  }
  void wait_for_cause(int peer, std::uint64_t subgroup, Deadline deadline) override {
    hub_->wait_for_cause(topology_.rank(), peer, subgroup, deadline);
  }

 private:
  void throw_if_left_ourselves() const {
    if (!has_left(topology_.rank())) return;
    throw Error(ErrorCode::kShutDown, fmt::format("rank {} has left its group", topology_.rank()));
  }

  std::shared_ptr<Hub> hub_;
  Topology topology_;
  int exceptions_at_start_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_in_process_groups(int size, std::vector<std::string> host_ids) {
  GYRE_CHECK(size >= 1);
  if (!host_ids.empty()) GYRE_CHECK(host_ids.size() == static_cast<std::size_t>(size));
  std::vector<Member> members;
  for (int rank = 0; rank < size; ++rank) {
    const auto host = host_ids.empty() ? this_host_name() : host_ids[static_cast<std::size_t>(rank)];
    members.push_back({rank, {}, host, host, ::getpid(), this_process_namespace(), {}});
  }
  const auto hub = std::make_shared<Hub>(std::move(members));
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_unique<InProcessGroup>(hub, rank));
  return groups;
}

namespace {

Error as_error(const std::exception_ptr& failure, int rank) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return Error(error).add_context(fmt::format("rank {}", rank));
  } catch (...) {
    return {ErrorCode::kInternal, fmt::format("rank {}: {}", rank, describe(failure))};
  }
}

}  // namespace

void run_in_process(int size, const std::function<void(Group&)>& body, std::vector<std::string> host_ids) {
  const auto groups = make_in_process_groups(size, std::move(host_ids));
  Mutex mutex;
  std::optional<Error> first;
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&, rank_group = group.get()] {
      try {
        body(*rank_group);
        rank_group->leave();
      } catch (...) {
        const Error error = as_error(std::current_exception(), rank_group->rank());
        const MutexLock lock(mutex);
        rank_group->abort(error);
        if (!first && !rank_group->was_lost(rank_group->rank())) first = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) throw *first;
}

}  // namespace gyre::group
