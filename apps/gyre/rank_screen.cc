#include "apps/gyre/rank_screen.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/gyre/remote.h"
#include "gyre/base/clock.h"
#include "gyre/cli/table.h"

namespace gyre::app {

namespace {

using cli::BlockLine;
using cli::Tone;

/// What the last column needs to be worth its place.
constexpr int kLeastText = 12;
/// In this order they are left out of a narrow window.
constexpr std::array<std::string_view, 7> kLeastImportant = {"LAST VALUE", "CORES",  "MEMORY", "WAITS",
                                                             "STEPS/S",    "DETAIL", "STATE"};

struct RankColumn {
  std::string heading;
  std::vector<std::string> cells{};

  bool is_empty() const {
    return std::ranges::all_of(cells, [](const std::string& cell) { return cell.empty(); });
  }
  int width() const {
    int width = cli::columns_of(heading);
    for (const std::string& cell : cells) width = std::max(width, cli::columns_of(cell));
    return width;
  }
};

std::string number(const Json& value, const char* format) {
  return value.is_number() ? fmt::format(fmt::runtime(format), value.get<double>()) : std::string();
}

std::string percent(const Json& share) {
  return share.is_number() ? fmt::format("{:.0f} %", 100 * share.get<double>()) : std::string();
}

std::string bytes(const Json& value) {
  return value.is_number() ? cli::shown_bytes(static_cast<std::uint64_t>(std::max(0.0, value.get<double>()))) : "";
}

/// "3", "3 (server)" and, of a job whose processes have roles of their own, "ps 0".
std::string name_of(const Json& rank) {
  const std::string number = std::to_string(rank.at("rank").get<int>());
  const std::string role = cli::printable(rank.value("role", ""));
  if (role.empty() || role == "default") return number;
  return role.find(' ') != std::string::npos ? role : fmt::format("{} ({})", number, role);
}

std::vector<RankColumn> rank_columns(const RankView& view, std::int64_t now_us) {
  std::vector<RankColumn> columns = {{"RANK"},  {"STATE"},  {"STEP"},       {"STEPS/S"}, {"WAITS"},
                                     {"CORES"}, {"MEMORY"}, {"LAST VALUE"}, {"DETAIL"}};
  for (const Json& rank : view.job.at("ranks")) {
    const Json& value_time = rank.value("value_time", Json());
    const bool has_age = value_time.is_number() && !view.is_over;
    const double age = has_age ? static_cast<double>(now_us) / 1e6 - value_time.get<double>() : 0;
    const auto line = view.last_lines.find(rank.at("rank").get<int>());
    std::string text = rank.at("detail").get<std::string>();
    if (line != view.last_lines.end()) text += (text.empty() ? "" : "; ") + line->second;
    const std::array<std::string, 9> cells = {
        name_of(rank),
        rank.at("phase").get<std::string>(),
        number(rank.at("step"), "{:.0f}"),
        number(rank.at("steps_per_second"), "{:.3g}"),
        percent(rank.at("waiting")),
        number(rank.at("cpu_cores"), "{:.2f}"),
        bytes(rank.at("memory_bytes")),
        has_age ? cli::shown_seconds(std::llround(std::max(0.0, age))) + " ago" : "",
        cli::printable(text),
    };
    for (std::size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back(cells[i]);
  }
  return columns;
}

/// Leaves out those that do not fit, and returns their names.
std::vector<std::string> fit(std::vector<RankColumn>& columns, int width) {
  std::erase_if(columns, [](const RankColumn& column) { return column.is_empty(); });
  const auto needed = [&columns] {
    int sum = 0;
    for (const RankColumn& column : columns) {
      sum += 2 + (column.heading == "DETAIL" ? std::min(kLeastText, column.width()) : column.width());
    }
    return sum;
  };
  std::vector<std::string> left_out;
  for (const std::string_view heading : kLeastImportant) {
    if (width <= 0 || needed() <= width) break;
    if (std::erase_if(columns, [&](const RankColumn& column) { return column.heading == heading; }) == 0) continue;
    left_out.emplace_back(heading);
  }
  return left_out;
}

Tone tone_of(const std::string& phase) {
  if (phase == "failed" || phase == "lost") return Tone::kBad;
  if (phase == "late") return Tone::kBusy;
  return phase == "ended" || phase == "stopped" ? Tone::kDim : Tone::kPlain;
}

std::vector<BlockLine> table_lines(const std::vector<RankColumn>& columns, const Json& ranks) {
  std::vector<std::string> headings;
  for (const RankColumn& column : columns) headings.push_back(column.heading);
  cli::Table table(std::move(headings));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::vector<std::string> cells;
    for (const RankColumn& column : columns) cells.push_back(column.cells[i]);
    table.add(std::move(cells));
  }
  const std::string text = table.text();
  std::vector<BlockLine> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const Tone tone = lines.empty() ? Tone::kPlain : tone_of(ranks[lines.size() - 1].at("phase").get<std::string>());
    lines.push_back({text.substr(at, end - at), tone});
    at = end + 1;
  }
  return lines;
}

void add_values(std::vector<BlockLine>& lines, const Json& job, std::size_t most) {
  const Json& latest = job.value("latest", Json::array());
  const auto names = job.value("names", std::size_t{0});
  std::size_t shown = 0;
  for (const Json& one : latest) {
    if (shown++ == most) break;
    const Json& value = one.at("value");
    lines.push_back({fmt::format("{} {} at step {}", cli::printable(one.at("name").get<std::string>()),
                                 value.is_number() ? number(value, "{:.6g}") : value.get<std::string>(),
                                 one.at("step").get<std::int64_t>())});
  }
  shown = std::min(latest.size(), most);
  if (names > shown) lines.push_back({fmt::format("and {} more names", names - shown), Tone::kDim});
}

}  // namespace

std::vector<BlockLine> lines_of(const RankView& view, const cli::TerminalSize& size, std::int64_t now_us) {
  constexpr int kRowsOfAValue = 6;
  std::vector<BlockLine> lines = {{cli::printable(view.title)}};
  const Json& ranks = view.job.at("ranks");
  if (ranks.empty()) {
    for (const std::string& line : view.without_ranks) lines.push_back({line, Tone::kDim});
    return lines;
  }
  const auto rows = static_cast<std::size_t>(std::max(0, size.rows - 1));  // The cursor has the last one.
  add_values(lines, view.job, rows == 0 ? SIZE_MAX : rows / kRowsOfAValue);
  std::vector<RankColumn> columns = rank_columns(view, now_us);
  const std::vector<std::string> left_out = fit(columns, size.columns);
  const std::vector<BlockLine> table = table_lines(columns, ranks);
  lines.insert(lines.end(), table.begin(), table.end());
  const std::size_t below = left_out.empty() ? 0 : 1;
  if (rows > 0 && lines.size() + below > rows) {
    const std::size_t kept = std::max(rows, below + 2) - below - 1;
    const std::size_t missing = std::min(lines.size() - std::min(kept, lines.size()), ranks.size());
    lines.resize(lines.size() - missing);
    lines.push_back({fmt::format("and {} more ranks", missing), Tone::kDim});
  }
  if (below > 0) lines.push_back({fmt::format("too narrow for {}", fmt::join(left_out, ", ")), Tone::kDim});
  return lines;
}

void show_ranks(cli::LiveBlock& block, const std::function<RankView()>& look, bool once,
                std::chrono::milliseconds between) {
  RankView view = look();
  for (; block.draws() && !once && !view.is_over; view = look()) {
    block.show(lines_of(view, block.size(), wall_clock_us()));
    std::this_thread::sleep_for(between);
  }
  const cli::TerminalSize size = block.draws() ? cli::TerminalSize{block.size().columns, 0} : cli::TerminalSize{0, 0};
  block.clear();
  std::string text;
  for (const BlockLine& line : lines_of(view, size, wall_clock_us())) text += line.text + "\n";
  write_out(text);
}

}  // namespace gyre::app
