#pragma once

#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/launch/internal/job_metrics.h"
#include "gyre/launch/internal/metrics_intake.h"
#include "gyre/launch/internal/record_log.h"
#include "gyre/launch/internal/record_reader.h"
#include "gyre/launch/internal/signals.h"
#include "gyre/launch/spec.h"

namespace gyre::launch {

/// The inside of run_detached(): one loop over the RankSet, the signals, the socket and its readers.
class DetachedRun : private RankEvents {
 public:
  explicit DetachedRun(const LaunchSpec& spec);

  int run();

 private:
  /// The socket, and the file that is its name.
  struct Listener {
    explicit Listener(const std::string& where);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    UniqueFd socket;
    std::string path;
  };

  void started(int rank, pid_t process) override;
  void output(int rank, Stream stream, std::string_view bytes) override;
  void ended(const ExitRecord& record) override;
  void note_for_other_hosts(const std::string& line) override;

  RankSetOptions with_files(const LaunchSpec& spec);
  std::optional<MetricsIntake> make_intake();
  void announce() const;
  void wait_for_events();
  void handle_signals();
  void accept_readers();
  void serve_readers();
  std::optional<nlohmann::json> answer(const nlohmann::json& request);
  nlohmann::json stop(const nlohmann::json& request);
  nlohmann::json status() const;
  void record_end();
  bool over() const;

  LaunchSpec spec_;
  std::vector<UniqueFd> files_;  ///< Of the ranks' output.
  RecordLog log_;
  Listener listener_;
  SignalSource signals_;
  std::optional<JobMetrics> metrics_;
  std::optional<MetricsIntake> intake_;  ///< With metrics_.
  RankSet ranks_;
  std::list<RecordReader> readers_;
  SteadyClock::time_point accepts_from_{};  ///< Later than now after there was no descriptor for a reader.
  bool released_ = false;
  std::optional<SteadyClock::time_point> linger_until_;  ///< Set once the ranks have ended.
};

}  // namespace gyre::launch
