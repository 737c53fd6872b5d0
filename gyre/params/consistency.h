#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gyre/params/ledger.h"
#include "gyre/params/update_rule.h"

namespace gyre::params {

/// What the average of the workers' differences does to the common parameters in local steps.
enum class OuterOptimizer : std::uint8_t {
  kAverage,   ///< It is added: the parameters are averaged.
  kBmuf,      ///< Block momentum of 1 - 1/workers (Chen and Huo, ICASSP 2016; CNTK's block-momentum learner).
  kNesterov,  ///< Nesterov momentum of 0.9 at rate 0.7 (DiLoCo, arXiv 2311.08105).
};

/// How closely the workers of a job keep together: one dial for programs and Python.
struct ConsistencyChoice {
  ConsistencyOptions servers;     ///< What parameter servers do.
  std::uint64_t local_steps = 0;  ///< Steps that each worker takes alone between two exchanges; 0: none.
  OuterOptimizer outer = OuterOptimizer::kAverage;

  /// Every step uses all workers' gradients, and a loss ends the job: works without parameter servers.
  bool is_plain_sync() const { return servers == ConsistencyOptions{} && local_steps == 0; }
  /// Only parameter servers can do that.
  bool needs_servers() const { return servers != ConsistencyOptions{}; }
};

inline constexpr std::string_view kConsistencyForms =
    "sync, sync:continue, backup:N, async, bounded:S, local:K, local:K:bmuf, local:K:nesterov";

/// From one of kConsistencyForms. Error(kInvalidArgument) says what is wrong.
ConsistencyChoice parse_consistency(std::string_view text);

/// The outer optimizer as an update rule on "gradients" that are the common parameters minus the local ones.
UpdateOptions outer_rule(OuterOptimizer outer, int workers);

}  // namespace gyre::params
