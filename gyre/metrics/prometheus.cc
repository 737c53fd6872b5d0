#include "gyre/metrics/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "gyre/metrics/sample.h"

namespace gyre::metrics {
namespace {

struct Own {
  std::string_view name;
  std::string_view type;
  std::string_view help;
};

/// A counter's name gets "_total", as Prometheus wants it.
constexpr std::array kOwn = {
    Own{"gyre/cpu_cores", "gauge", "Processor time that the rank's process uses, in cores."},
    Own{"gyre/memory_bytes", "gauge", "Resident memory of the rank's process."},
    Own{"gyre/sent_bytes", "counter", "Bytes that the rank has sent to other hosts."},
    Own{"gyre/received_bytes", "counter", "Bytes that the rank has received from other hosts."},
    Own{"gyre/waiting_seconds", "counter", "Time that the rank's operations have waited for other ranks."},
    Own{"gyre/steps", "counter", "Steps of optimizers that the rank has finished."},
    Own{"gyre/exchange_seconds", "counter", "Time that gradients were exchanged."},
    Own{"gyre/hidden_seconds", "counter", "The part of the exchange that fell into backward."},
    Own{"gyre/exposed_seconds", "counter", "Time that the training has waited for the exchange."},
    Own{"gyre/dropped_samples", "counter", "Values that the rank could not hand to its launcher."},
};

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

std::string heading(std::string_view name, std::string_view help, std::string_view type) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string own_metrics(const Run& run, const Own& own) {
  std::string name(own.name);
  std::ranges::replace(name, '/', '_');
  if (own.type == "counter") name += "_total";
  std::string lines;
  const std::string key(own.name);
  for (auto each = run.series.lower_bound({key, 0}); each != run.series.end() && each->first.name == key; ++each) {
    lines += fmt::format("{}{{rank=\"{}\"}} {}\n", name, each->first.rank, number(each->second.back().value));
  }
  return lines.empty() ? lines : heading(name, own.help, own.type) + lines;
}

}  // namespace

std::string prometheus_text(const Run& run) {
  std::string text;
  for (const Own& own : kOwn) text += own_metrics(run, own);
  std::string values;
  std::string steps;
  for (const auto& [key, points] : run.series) {
    if (key.name.starts_with(kReservedPrefix)) continue;
    const std::string labels = fmt::format("{{name=\"{}\",rank=\"{}\"}}", label_value(key.name), key.rank);
    values += fmt::format("gyre_logged_value{} {}\n", labels, number(points.back().value));
    steps += fmt::format("gyre_logged_step{} {}\n", labels, points.back().step);
  }
  if (values.empty()) return text;
  return text + heading("gyre_logged_value", "The latest value that the program has logged.", "gauge") + values +
         heading("gyre_logged_step", "The step of that value.", "gauge") + steps;
}

}  // namespace gyre::metrics
