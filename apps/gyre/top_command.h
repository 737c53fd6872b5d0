#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace gyre::app {

/// `gyre top FILE`
class TopCommand {
 public:
  explicit TopCommand(CLI::App& app);
  int run() const;

 private:
  std::string file_;
  bool once_ = false;
};

}  // namespace gyre::app
