#include "gyre/train/data_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "gyre/data/loader.h"

namespace gyre::train {
namespace {

double milliseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
  return result;
}

/// Calls `add(phase)` for the wait, and then for each stage.
template <typename Add>
void add_phases(const data::BatchWait& wait, Add add) {
  std::string detail = fmt::format("epoch {}, step {}; the threads worked {:.3f} ms:", wait.epoch, wait.step,
                                   milliseconds(wait.worked.total()));
  for (std::size_t i = 0; i < data::kStages; ++i) {
    detail += fmt::format("{} {} {:.3f}", i == 0 ? "" : ",", data::kStageNames[i], milliseconds(wait.worked.spent[i]));
  }
  add({.name = "WAIT_FOR_DATA", .began = wait.began, .lasted = wait.waited, .detail = std::move(detail)});
  auto began = wait.began;
  for (std::size_t i = 0; i < data::kStages; ++i) {
    const std::chrono::nanoseconds lasted = wait.waited_for.spent[i];
    if (lasted.count() == 0) continue;
    const std::string name = upper(data::kStageNames[i]);
    add({.name = name, .began = began, .lasted = lasted});
    began += lasted;
  }
}

}  // namespace

void add_wait_to_timeline(engine::Engine& engine, std::string_view row, const data::BatchWait& wait) {
  if (!engine.timeline_runs()) return;
  add_phases(wait, [&](const PastPhase& phase) { engine.add_to_timeline(row, phase); });
}

void add_wait_to_timeline(Timeline& timeline, std::string_view row, const data::BatchWait& wait) {
  if (!timeline.enabled()) return;
  add_phases(wait, [&](const PastPhase& phase) { timeline.add(row, phase); });
}

}  // namespace gyre::train
