#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::spec {

/// The problems as `gyre job validate` prints them: "12: /properties/nodeCount is missing".
template <typename Spec>
std::vector<std::string> problems_of(const Parsed<Spec>& parsed) {
  std::vector<std::string> lines;
  for (const Problem& problem : parsed.problems) lines.push_back(describe(problem));
  return lines;
}

/// A job file of version 2018-05-01 with `properties` beside the ones that every job needs. `toolkit` is one block.
inline std::string job_file(const std::string& properties,
                            const std::string& toolkit = R"("customToolkitSettings": {"commandLine": "true"})") {
  return R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/logs", )" + toolkit +
         (properties.empty() ? "" : ", " + properties) + "}}";
}

/// The job of a file that must have neither errors nor warnings.
inline JobSpec clean_job(std::string_view text, const ParseOptions& options = {}) {
  const Parsed<JobSpec> parsed = parse_job(text, options);
  EXPECT_EQ(problems_of(parsed), std::vector<std::string>{}) << text;
  return parsed.spec.value_or(JobSpec{});
}

/// The job of a file that is tolerated with warnings, which are added to `warnings`.
inline JobSpec tolerated_job(std::string_view text, std::vector<std::string>& warnings,
                             const ParseOptions& options = {}) {
  const Parsed<JobSpec> parsed = parse_job(text, options);
  warnings = problems_of(parsed);
  EXPECT_TRUE(parsed.spec.has_value()) << text << (warnings.empty() ? "" : "\n" + warnings.front());
  return parsed.spec.value_or(JobSpec{});
}

}  // namespace gyre::jobs::spec
