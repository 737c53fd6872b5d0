#include "gyre/page/rank_timeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/rank_file.h"
#include "gyre/page/internal/json.h"

namespace gyre::page {

namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, kActivities> kNames = {"wait_for_exchange", "wait_for_data", "negotiate", "exchange",
                                                         "wait_for_ranks",    "copy",          "reduce",    "send"};
constexpr std::size_t kMostSpansOfRank = 50'000;
constexpr std::size_t kFewestSpans = 16;
constexpr std::size_t kMostLabels = 10'000;
constexpr std::size_t kLongestLabel = 300;
constexpr std::size_t kMostRows = 100'000;
/// Of one call of read(); no line of ours is longer.
constexpr std::size_t kFewestBytesAtOnce = std::size_t{64} << 10;
/// Sums of two times, and their differences, are numbers as well.
constexpr std::int64_t kFarthestUs = std::int64_t{1} << 55;
constexpr std::size_t kHeadBytes = 128;

/// Neighbours become one where both together are not longer than `longest`.
template <typename Container>
std::vector<Span> joined(const Container& spans, std::int64_t longest_us) {
  std::vector<Span> all;
  for (const Span& span : spans) {
    if (all.empty() || span.end_us - all.back().begin_us > longest_us) {
      all.push_back(span);
      continue;
    }
    all.back().end_us = span.end_us;
    all.back().covered_us += span.covered_us;
    all.back().count += span.count;
  }
  return all;
}

/// In at most `most`.
template <typename Container>
std::vector<Span> fewer(const Container& spans, std::size_t most) {
  std::vector<Span> all(spans.begin(), spans.end());
  if (all.size() <= most) return all;
  auto longest_us = (all.back().end_us - all.front().begin_us) / static_cast<std::int64_t>(most) + 1;
  for (; all.size() > most; longest_us *= 2) all = joined(all, longest_us);
  return all;
}

/// What no rank of ours writes.
struct NotOurs {};

std::int64_t time_in(const Json& object, const char* name) {
  const Json& number = object.at(name);
  if (!number.is_number_integer()) throw NotOurs();
  if (number.is_number_unsigned() && number.get<std::uint64_t>() > static_cast<std::uint64_t>(kFarthestUs)) {
    throw NotOurs();
  }
  const auto time = number.get<std::int64_t>();
  if (time < -kFarthestUs || time > kFarthestUs) throw NotOurs();
  return time;
}

/// The number behind a word: "send 12" in "wait 1 send 12".
std::optional<std::int64_t> number_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const char* begin = text.data() + at + word.size();
  const auto [end, failure] = std::from_chars(begin, text.data() + text.size(), number);
  return failure == std::errc() && end != begin ? std::optional(number) : std::nullopt;
}

}  // namespace

void Spans::add(Span span) {
  while (!spans_.empty() && spans_.back().end_us > span.begin_us) {
    const Span& last = spans_.back();
    span.begin_us = std::min(span.begin_us, last.begin_us);
    span.end_us = std::max(span.end_us, last.end_us);
    span.covered_us = std::min(span.covered_us + last.covered_us, span.end_us - span.begin_us);
    span.count += last.count;
    span.label = last.label;
    spans_.pop_back();
  }
  spans_.push_back(span);
  if (spans_.size() <= most_) return;
  const std::vector<Span> few = fewer(spans_, std::max<std::size_t>(most_ / 2, 1));
  spans_.assign(few.begin(), few.end());
}

std::vector<Span> Spans::within(std::int64_t from_us, std::int64_t to_us, std::size_t most) const {
  const auto begin = std::ranges::lower_bound(spans_, from_us, {}, &Span::end_us);
  const auto end = std::ranges::upper_bound(begin, spans_.end(), to_us, {}, &Span::begin_us);
  return fewer(std::ranges::subrange(begin, end), most);
}

RankTimeline::RankTimeline(Open open, std::size_t most_spans) : open_(std::move(open)), most_spans_(most_spans) {
  begin_again();
}

void RankTimeline::begin_again() {
  offset_ = 0;
  rows_.clear();
  spans_.assign(kActivities, Spans(most_spans_));
  labels_.clear();
  numbers_.clear();
  start_us_ = end_us_ = 0;
}

bool RankTimeline::read(std::size_t most_bytes) {
  const UniqueFd file = open_();
  if (!file) return false;
  std::string head(kHeadBytes, '\0');
  head.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(file.get(), head.data(), head.size(), 0))));
  if (head_.empty() ? head.size() == kHeadBytes : head != head_) {
    begin_again();
    head_ = head.size() == kHeadBytes ? head : std::string();
  }
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || std::cmp_less_equal(status.st_size, offset_)) return false;
  std::string text(std::min(most_bytes, static_cast<std::size_t>(status.st_size) - offset_), '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(offset_));
  if (count <= 0) return false;
  const std::string_view read(text.data(), static_cast<std::size_t>(count));
  // The file ends with a bracket, over which the next event is written: what was read ends with the last event.
  std::size_t taken = 0;
  for (;;) {
    const std::size_t begin = read.find('{', taken);
    const std::size_t end = begin == std::string_view::npos ? begin : read.find('\n', begin);
    if (end == std::string_view::npos) break;
    std::string_view line = read.substr(begin, end - begin);
    if (line.ends_with(',')) line.remove_suffix(1);
    take(line);
    taken = begin + line.size();
  }
  offset_ += taken;
  return taken > 0;
}

void RankTimeline::take(std::string_view line) {
  const Json event = Json::parse(line, nullptr, false);
  if (!event.is_object()) return;
  try {
    const std::string& phase = event.at("ph").get_ref<const std::string&>();
    const int row_number = static_cast<int>(time_in(event, "pid"));
    if (phase == "M") {
      const Json& arguments = event.at("args");
      if (row_number == 0) start_us_ = end_us_ = time_in(arguments, "start_time_since_epoch_in_micros");
      if (event.at("name") == "process_name" && is_kept(row_number)) {
        rows_[row_number].name = arguments.at("name").get<std::string>().substr(0, kLongestLabel);
      }
      return;
    }
    if (!is_kept(row_number)) return;
    Row& row = rows_[row_number];
    const std::int64_t at_us = start_us_ + time_in(event, "ts");
    const std::int64_t end_us = phase == "X" ? at_us + time_in(event, "dur") : at_us;
    end_us_ = std::max(end_us_, end_us);
    if (phase == "B" && event.at("name").get_ref<const std::string&>().starts_with("NEGOTIATE")) {
      row.negotiates_since = at_us;
    } else if (phase == "E" && row.negotiates_since) {
      const std::int64_t since_us = *std::exchange(row.negotiates_since, std::nullopt);
      add(Activity::kNegotiate, {since_us, at_us, at_us - since_us, label_of(row.name)});
    } else if (phase == "X") {
      const std::string detail = event.contains("args") ? event["args"].value("detail", "") : std::string();
      take_phase(row, event.at("name").get_ref<const std::string&>(), {at_us, end_us, end_us - at_us}, detail);
    }
  } catch (const Json::exception&) {
    // Not one of ours: the program may write what it likes.
  } catch (const NotOurs&) {
    return;
  }
}

bool RankTimeline::is_kept(int row) const { return rows_.size() < kMostRows || rows_.contains(row); }

void RankTimeline::take_phase(const Row& row, std::string_view name, Span span, const std::string& detail) {
  if (name == "WAIT_FOR_DATA") return add(Activity::kWaitForData, span);
  if (name == "WAIT_FOR_EXCHANGE") {
    if (!detail.empty()) span.label = label_of(detail);
    return add(Activity::kWaitForExchange, span);
  }
  if (name == "CLOCK") return take_clock(detail);
  if (name != "COLLECTIVE") return;
  span.label = label_of(row.name.substr(std::min(row.name.size(), row.name.find("gyre: ") + 6)));
  add(Activity::kExchange, span);
  constexpr std::array<std::pair<const char*, Activity>, 4> kParts = {{{"wait ", Activity::kWaitForRanks},
                                                                       {"copy ", Activity::kCopy},
                                                                       {"reduce ", Activity::kReduce},
                                                                       {"send ", Activity::kSend}}};
  for (const auto& [word, activity] : kParts) {
    const auto spent_us = number_after(detail, word);
    if (!spent_us || *spent_us <= 0) continue;
    span.covered_us = std::min(*spent_us, span.end_us - span.begin_us);
    add(activity, span);
  }
}

void RankTimeline::take_clock(const std::string& detail) {
  const std::size_t id = detail.find(" id ");
  const std::size_t ahead = detail.find(" ahead ");
  if (!detail.starts_with("host ") || id == std::string::npos) return;
  host_ = detail.substr(5, std::min(id - 5, kLongestLabel));
  host_id_ = detail.substr(id + 4, std::min(ahead == std::string::npos ? ahead : ahead - id - 4, kLongestLabel));
  ahead_us_ = number_after(detail, " ahead ");
  if (ahead_us_ && (*ahead_us_ > kFarthestUs || *ahead_us_ < -kFarthestUs)) ahead_us_.reset();
}

std::uint32_t RankTimeline::label_of(const std::string& text) {
  if (text.size() > kLongestLabel) return label_of(text.substr(0, kLongestLabel));
  const auto known = numbers_.find(text);
  if (known != numbers_.end()) return known->second;
  if (labels_.size() == kMostLabels) return 0;
  labels_.push_back(text);
  const auto number = static_cast<std::uint32_t>(labels_.size());
  numbers_.emplace(text, number);
  return number;
}

void RankTimeline::add(Activity activity, Span span) {
  if (span.end_us > span.begin_us) spans_[static_cast<std::size_t>(activity)].add(span);
}

JobTimeline::JobTimeline(std::filesystem::path pattern)
    : open_([pattern = std::move(pattern)](int rank) {
        return UniqueFd(::open(file_of_rank(pattern, rank).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      }) {}

void JobTimeline::add_rank(int rank) {
  // All of them once there are many: the bound is of all ranks together.
  const std::size_t most = std::min(kMostSpansOfRank, most_spans_ / kActivities / (ranks_.size() + 1));
  ranks_.try_emplace(rank, [open = open_, rank] { return open(rank); }, std::max(most, kFewestSpans));
}

void JobTimeline::find_ranks() {
  for (int rank = 0; open_(rank); ++rank) add_rank(rank);
}

bool JobTimeline::read(std::size_t most_bytes) {
  const std::size_t of_each = most_bytes / std::max<std::size_t>(ranks_.size(), 1);
  bool is_news = false;
  for (auto& [number, rank] : ranks_) {
    is_news = rank.read(std::clamp(of_each, kFewestBytesAtOnce, RankTimeline::kMostBytesAtOnce)) || is_news;
  }
  return is_news;
}

bool JobTimeline::is_empty() const {
  return std::ranges::all_of(ranks_, [](const auto& rank) { return rank.second.end_us() == 0; });
}

std::int64_t JobTimeline::ahead_of(const std::string& host_id) const {
  for (const auto& [number, rank] : ranks_) {
    if (rank.host_id() == host_id && rank.ahead_us()) return *rank.ahead_us();
  }
  return 0;
}

std::string JobTimeline::json(std::optional<std::int64_t> from_us, std::optional<std::int64_t> to_us,
                              std::size_t most_spans) const {
  std::int64_t begin_us = std::numeric_limits<std::int64_t>::max();
  std::int64_t end_us = 0;
  for (const auto& [number, rank] : ranks_) {
    if (rank.end_us() == 0) continue;
    const std::int64_t ahead_us = ahead_of(rank.host_id());
    begin_us = std::min(begin_us, rank.begin_us() + ahead_us);
    end_us = std::max(end_us, rank.end_us() + ahead_us);
  }
  begin_us = std::min(begin_us, end_us);
  const std::size_t most = std::max(kFewestSpans, most_spans / kActivities / std::max<std::size_t>(ranks_.size(), 1));
  Json labels = Json::array();
  std::unordered_map<std::string, std::size_t> numbers;
  const auto number_of = [&](const RankTimeline& rank, std::uint32_t label) -> std::size_t {
    if (label == 0) return 0;
    const std::string& text = rank.labels().at(label - 1);
    const auto [place, is_new] = numbers.try_emplace(text, numbers.size() + 1);
    if (is_new) labels.push_back(text);
    return place->second;
  };
  Json ranks = Json::array();
  for (const auto& [number, rank] : ranks_) {
    if (rank.end_us() == 0) continue;
    const std::int64_t ahead_us = ahead_of(rank.host_id());
    Json activities = Json::object();
    for (std::size_t i = 0; i < kActivities; ++i) {
      const auto spans = rank.spans(static_cast<Activity>(i))
                             .within(from_us.value_or(begin_us) - ahead_us, to_us.value_or(end_us) - ahead_us, most);
      Json numbers_of = Json::array();
      for (const Span& span : spans) {
        numbers_of.push_back(span.begin_us + ahead_us);
        numbers_of.push_back(span.end_us - span.begin_us);
        numbers_of.push_back(span.covered_us);
        numbers_of.push_back(number_of(rank, span.label));
        numbers_of.push_back(span.count);
      }
      if (!spans.empty()) activities[kNames.at(i)] = std::move(numbers_of);
    }
    ranks.push_back({{"rank", number},
                     {"host", rank.host()},
                     {"begin", rank.begin_us() + ahead_us},
                     {"end", rank.end_us() + ahead_us},
                     {"spans", std::move(activities)}});
  }
  return internal::text_of(
      {{"from", begin_us}, {"to", end_us}, {"labels", std::move(labels)}, {"ranks", std::move(ranks)}});
}

}  // namespace gyre::page
