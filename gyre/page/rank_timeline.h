#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gyre/base/file.h"

namespace gyre::page {

/// What a rank's time went into. Several at once: a rank computes while its engine exchanges.
enum class Activity : std::uint8_t {
  kWaitForExchange,  ///< The program waits for an exchange.
  kWaitForData,      ///< The program waits for its loader.
  kNegotiate,        ///< Operations wait until all ranks have called them.
  kExchange,         ///< Collectives run. What of it went into the next four is a lower bound.
  kWaitForRanks,
  kCopy,
  kReduce,
  kSend,
};
constexpr std::size_t kActivities = 8;

/// One time of an activity, or several that lie close together. Microseconds.
struct Span {
  std::int64_t begin_us = 0;
  std::int64_t end_us = 0;
  std::int64_t covered_us = 0;  ///< Of them.
  std::uint32_t label = 0;      ///< Of the first; see RankTimeline::labels().
  std::uint32_t count = 1;
};

/// Spans that follow each other without overlapping, at most so many: neighbours become one where there are more. Pure.
class Spans {
 public:
  explicit Spans(std::size_t most) : most_(most) {}
  /// In the order of their ends. What overlaps becomes one.
  void add(Span span);
  const std::deque<Span>& all() const { return spans_; }
  /// Those within a range, or that reach into it, in at most `most` (2 or more).
  std::vector<Span> within(std::int64_t from_us, std::int64_t to_us, std::size_t most) const;

 private:
  std::size_t most_;
  std::deque<Span> spans_;
};

/// The trace of one rank (GYRE_TIMELINE with {rank} in it) while it grows. Anything may stand in its file; what is kept
/// of it is limited. Not thread-safe.
class RankTimeline {
 public:
  /// Nothing where there is no such file, or not yet.
  using Open = std::function<UniqueFd()>;
  /// Of one call of read(): a look must not take long.
  static constexpr std::size_t kMostBytesAtOnce = std::size_t{8} << 20;

  /// `most_spans`: of each activity.
  RankTimeline(Open open, std::size_t most_spans);

  /// Takes in what has come, so many bytes of it at most. True where there was something.
  bool read(std::size_t most_bytes = kMostBytesAtOnce);

  // By the clock of its host, since 1970.
  std::int64_t begin_us() const { return start_us_; }
  std::int64_t end_us() const { return end_us_; }
  const Spans& spans(Activity activity) const { return spans_.at(static_cast<std::size_t>(activity)); }
  const std::vector<std::string>& labels() const { return labels_; }
  const std::string& host() const { return host_; }
  const std::string& host_id() const { return host_id_; }  ///< As group::Member::host_id.
  /// How far rank 0's clock is ahead of the host's, where this rank has measured it.
  std::optional<std::int64_t> ahead_us() const { return ahead_us_; }

 private:
  struct Row {
    std::string name;
    std::optional<std::int64_t> negotiates_since;  ///< By line 0; others are rare.
  };
  void begin_again();
  void take(std::string_view line);
  void take_phase(const Row& row, std::string_view name, Span span, const std::string& detail);
  void take_clock(const std::string& detail);
  std::uint32_t label_of(const std::string& text);
  bool is_kept(int row) const;
  void add(Activity activity, Span span);

  Open open_;
  std::size_t most_spans_;
  std::string head_;  ///< Of the file: another one says that it was begun again.
  std::uint64_t offset_ = 0;
  std::int64_t start_us_ = 0;
  std::int64_t end_us_ = 0;
  std::unordered_map<int, Row> rows_;
  std::vector<Spans> spans_;
  std::vector<std::string> labels_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::string host_;
  std::string host_id_;
  std::optional<std::int64_t> ahead_us_;
};

/// Those of all ranks, by one clock. Not thread-safe.
class JobTimeline {
 public:
  using OpenRank = std::function<UniqueFd(int rank)>;
  static constexpr std::size_t kMostSpansInMemory = 2'000'000;

  /// `pattern`: a file with "{rank}" in its name.
  explicit JobTimeline(std::filesystem::path pattern);
  /// `most_spans`: in memory.
  JobTimeline(OpenRank open, std::size_t most_spans) : open_(std::move(open)), most_spans_(most_spans) {}

  /// A rank that there is; its file need not be there.
  void add_rank(int rank);
  /// Adds the ranks whose files are there, up to the first that is not.
  void find_ranks();
  /// Takes in what has come, of all ranks together about so many bytes at most. True where there was something.
  bool read(std::size_t most_bytes = std::numeric_limits<std::size_t>::max());

  /// What a browser draws at once.
  static constexpr std::size_t kMostSpansDrawn = 60'000;
  /// {"from", "to", "labels": […], "ranks": [{"rank", "host", "begin", "end", "spans": {ACTIVITY: [begin, length,
  /// covered, label, count, …]}}]}: microseconds since 1970 by rank 0's clock; `labels` from 1 on. The range is all
  /// where it is not given. At most about `most_spans` of them.
  std::string json(std::optional<std::int64_t> from_us, std::optional<std::int64_t> to_us,
                   std::size_t most_spans = kMostSpansDrawn) const;
  bool is_empty() const;

 private:
  std::int64_t ahead_of(const std::string& host_id) const;

  OpenRank open_;
  std::size_t most_spans_ = kMostSpansInMemory;
  std::map<int, RankTimeline> ranks_;
};

}  // namespace gyre::page
