#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "gyre/jobs/drivers/internal/engine_option_values.h"
#include "gyre/jobs/drivers/slurm/driver.h"

namespace gyre::jobs::drivers::slurm {

namespace {

/// Those of sbatch that a site may need; their words are Slurm's to judge.
constexpr std::array<std::string_view, 10> kOfSbatch = {"partition",   "account",  "qos",  "constraint", "gres",
                                                        "reservation", "nodelist", "time", "exclude",    "mem"};

}  // namespace

SlurmOptions options_from(const std::map<std::string, std::string>& driver_options) {
  check_lines("slurm", driver_options);
  SlurmOptions options;
  for (const auto& [name, value] : driver_options) {
    if (std::ranges::find(kOfSbatch, name) != kOfSbatch.end()) {
      options.sbatch[name] = value;
    } else if (!set_common_option("slurm", name, value, options)) {
      refuse_option("slurm", name,
                    fmt::format("is not known; there are {} and, for sbatch, {}",
                                fmt::join(common_option_names(), ", "), fmt::join(kOfSbatch, ", ")));
    }
  }
  return options;
}

}  // namespace gyre::jobs::drivers::slurm
