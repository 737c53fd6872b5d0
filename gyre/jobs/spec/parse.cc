#include "gyre/jobs/spec/parse.h"

#include <fmt/format.h>

#include "gyre/base/error.h"

namespace gyre::jobs::spec {

namespace {

template <typename Spec>
Spec spec_or_throw(const Parsed<Spec>& parsed, std::string_view file) {
  if (parsed.spec) return *parsed.spec;
  std::string message;
  for (const Problem& problem : parsed.problems) {
    if (problem.severity != Severity::kError) continue;
    message += (message.empty() ? "" : "\n") + describe(problem, file);
  }
  throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

std::string describe(const Problem& problem, std::string_view file) {
  std::string text;
  if (!file.empty()) text += fmt::format("{}:", file);
  if (problem.line > 0) text += fmt::format("{}:", problem.line);
  if (!text.empty()) text += " ";
  if (problem.severity == Severity::kWarning) text += "warning: ";
  if (!problem.pointer.empty()) text += problem.pointer + " ";
  return text + problem.message;
}

JobSpec job_or_throw(const Parsed<JobSpec>& parsed, std::string_view file) { return spec_or_throw(parsed, file); }

ClusterSpec cluster_or_throw(const Parsed<ClusterSpec>& parsed, std::string_view file) {
  return spec_or_throw(parsed, file);
}

}  // namespace gyre::jobs::spec
