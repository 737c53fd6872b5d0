#include "gyre/launch/rank_set.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "gyre/launch/internal/supervisor.h"

namespace gyre::launch {

const ExitRecord* RankSetResult::first_failure() const {
  const auto found = std::ranges::find_if(ranks, [this](const auto& each) { return each.rank == first_failed_rank; });
  return found == ranks.end() ? nullptr : &*found;
}

int RankSetResult::exit_code() const {
  if (stopped_by) return 128 + *stopped_by;
  const ExitRecord* failure = first_failure();
  return failure != nullptr ? failure->status.shell_code() : 0;
}

RankSet::RankSet(RankSetOptions options, RankEvents& events)
    : supervisor_(std::make_unique<Supervisor>(std::move(options), events)) {}

RankSet::~RankSet() = default;

void RankSet::start() { supervisor_->start(); }
int RankSet::fd() const { return supervisor_->fd(); }
void RankSet::advance() { supervisor_->advance(); }
bool RankSet::finished() const { return supervisor_->finished(); }

void RankSet::run() {
  while (!finished()) {
    pollfd ready{.fd = fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, -1);
    advance();
  }
}

RankSetResult RankSet::result() const { return supervisor_->result(); }
bool RankSet::stop(int signal, std::chrono::milliseconds grace) { return supervisor_->stop(signal, grace); }
void RankSet::kill() { supervisor_->kill(); }
void RankSet::signal_all(int signal) const { supervisor_->signal_all(signal); }
bool RankSet::ending() const { return supervisor_->ending(); }
void RankSet::pause_output(bool paused) { supervisor_->pause_output(paused); }
void RankSet::hear(std::string_view notes) { supervisor_->hear(notes); }
void RankSet::expect_decision() { supervisor_->expect_decision(); }
void RankSet::decide(int rank) { supervisor_->decide(rank); }
void RankSet::lose(int rank) { supervisor_->lose(rank); }
const std::string& RankSet::rendezvous() const { return supervisor_->rendezvous(); }

}  // namespace gyre::launch
