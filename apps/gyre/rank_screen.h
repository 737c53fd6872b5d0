#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gyre/cli/live_block.h"

namespace gyre::app {

/// The ranks of a job at one moment, as `gyre top` shows them, wherever they come from.
struct RankView {
  std::string title{};
  nlohmann::json job{};                      ///< As page::JobState::json() describes it.
  std::map<int, std::string> last_lines{};   ///< Of the ranks' logs.
  std::vector<std::string> without_ranks{};  ///< What is shown while there are none.
  bool is_over = false;                      ///< Nothing changes any more.
};

/// Its lines in a window of this size: columns that do not fit are left out, and so are ranks, those that need
/// attention least; a line says so. `size` 0 by 0: all. `now_us`: since 1970. Pure.
std::vector<cli::BlockLine> lines_of(const RankView& view, const cli::TerminalSize& size, std::int64_t now_us);

/// Draws what `look` says until it is over, and then writes it to stdout; `once` or where nothing can be drawn, only
/// that. Error(kIo) where it cannot be written.
void show_ranks(cli::LiveBlock& block, const std::function<RankView()>& look, bool once,
                std::chrono::milliseconds between);

}  // namespace gyre::app
