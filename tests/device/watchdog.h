// The stand-in's watchdog, off unless STAND_IN_WATCHDOG_MS is set: as torch's for NCCL it ends every rank with SIGABRT
// when a call has not been carried out within a limit, in torch's words, which do not say who was the cause.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "tests/device/device.h"

namespace gyre::test_device {

class Watchdog {
 public:
  /// Null where none is wanted.
  static std::unique_ptr<Watchdog> of_environment(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
    const char* limit = std::getenv("STAND_IN_WATCHDOG_MS");
    if (limit == nullptr) return nullptr;
    return std::make_unique<Watchdog>(store, rank, std::chrono::milliseconds(std::stoi(limit)));
  }

  Watchdog(const c10::intrusive_ptr<c10d::Store>& store, int rank, std::chrono::milliseconds limit)
      : store_(store->clone()), rank_(rank), group_(next_group()), limit_(limit), thread_([this] { run(); }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    stopped_ = true;
    thread_.join();
  }

  void called(uint64_t number, c10d::OpType type, int64_t elements_in, int64_t elements_out, Position end) {
    const std::lock_guard lock(mutex_);
    last_called_ = number;
    pending_.push_back({number, type, elements_in, elements_out, end, std::chrono::steady_clock::now()});
  }

 private:
  struct Call {
    uint64_t number;
    c10d::OpType type;
    int64_t elements_in, elements_out;
    Position end;
    std::chrono::steady_clock::time_point when;
  };

  static constexpr std::chrono::milliseconds kLook{20};
  static constexpr std::chrono::milliseconds kTimeForOthers{500};  // To hear of it, while the store is still there.

  static std::string next_group() {
    static std::atomic<int> made{0};
    const int number = made++;
    return number == 0 ? "0(default_pg)" : std::to_string(number);
  }

  void run() {
    try {
      while (!stopped_) {
        std::this_thread::sleep_for(kLook);
        look();
      }
    } catch (const std::exception&) {
      return;  // The store has gone with its rank.
    }
  }

  void look() {
    const std::lock_guard lock(mutex_);
    while (!pending_.empty() && world().reached(pending_.front().end)) pending_.pop_front();
    if (!pending_.empty() && std::chrono::steady_clock::now() - pending_.front().when > limit_) {
      const Call& call = pending_.front();
      say("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" + std::to_string(call.number) +
          ", OpType=" + c10d::opTypeToString(call.type) + ", NumelIn=" + std::to_string(call.elements_in) +
          ", NumelOut=" + std::to_string(call.elements_out) + ", Timeout(ms)=" + std::to_string(limit_.count()) +
          ") ran for " + std::to_string(limit_.count()) + " milliseconds before timing out.");
      say(" failure detected by watchdog at work sequence id: " + std::to_string(call.number) +
          " PG status: last enqueued work: " + std::to_string(last_called_) +
          ", last completed work: " + std::to_string(call.number - 1));
      end_process();
    }
    if (!store_->check({"watchdog"})) return;
    say("Received a dump signal due to a collective timeout from  another rank and we will try our best to dump the "
        "debug info. Last enqueued NCCL work: " +
        std::to_string(last_called_) + ", last completed NCCL work: " + std::to_string(last_called_) + ".");
    end_process();
  }

  void say(const std::string& text) const {
    std::fprintf(stderr, "[rank%d]:[E626 06:24:44.903881913 stand_in.cc:1] [PG ID 0 PG GUID %s Rank %d] %s\n", rank_,
                 group_.c_str(), rank_, text.c_str());
  }

  [[noreturn]] void end_process() {
    store_->set("watchdog", std::vector<uint8_t>{1});
    std::this_thread::sleep_for(kTimeForOthers);
    std::abort();
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  std::string group_;
  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::deque<Call> pending_;
  uint64_t last_called_ = 0;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace gyre::test_device
