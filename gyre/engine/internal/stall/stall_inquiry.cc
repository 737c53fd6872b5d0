#include "gyre/engine/internal/stall/stall_inquiry.h"

#include <algorithm>
#include <utility>

namespace gyre::engine::internal {

std::uint32_t StallInquiry::ask(std::vector<int> ranks, SteadyClock::time_point now) {
  open_ = true;
  asked_ = now;
  asked_ranks_ = std::move(ranks);
  answers_.assign(answers_.size(), std::nullopt);
  return ++question_;
}

void StallInquiry::answer(int rank, StallAnswer answer) {
  if (open_ && answer.question == question_) answers_.at(static_cast<std::size_t>(rank)) = std::move(answer);
}

bool StallInquiry::is_over(SteadyClock::time_point now) const {
  return now >= deadline() || std::all_of(asked_ranks_.begin(), asked_ranks_.end(), [&](int rank) {
           return answers_[static_cast<std::size_t>(rank)].has_value();
         });
}

std::string StallInquiry::place_of(int rank) const {
  const auto& answer = answers_.at(static_cast<std::size_t>(rank));
  if (!answer) return "not answering where it is (stopped, or busy in native code)";
  return answer->program.empty() ? std::string() : "now at " + answer->program;
}

std::string StallInquiry::first_place_of(const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    const auto& answer = answers_.at(static_cast<std::size_t>(rank));
    if (answer && !answer->program.empty()) return "at " + answer->program;
  }
  return {};
}

std::vector<std::optional<RankState>> StallInquiry::states() const {
  std::vector<std::optional<RankState>> states;
  for (const auto& answer : answers_) states.push_back(answer ? std::optional(answer->state) : std::nullopt);
  return states;
}

std::vector<int> StallInquiry::waiting_for(const PlanStep& step) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < answers_.size(); ++rank) {
    if (!answers_[rank]) continue;
    const auto& steps = answers_[rank]->waits_for;
    if (std::find(steps.begin(), steps.end(), step) != steps.end()) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace gyre::engine::internal
