// SPDX-License-Identifier: MIT
#include "job/keep/openings.h"

#include <array>

namespace nibble {
namespace {

// Kinds take turns, so that a short text has something of each.
constexpr auto kOpenings = std::to_array<std::string_view>({
    "The history of",
    "從前有一個",
    "def ",
    "1. ",
    "User: How do I",
    "#include <",
    "In mathematics, a",
    "根據最新的研究",
    "Once upon a time,",
    "Dear Sir or Madam,\n\n",
    "| Name | Year | Place |\n|---|---|---|\n|",
    "El ",
    "問：為什麼",
    "import numpy as np\n\n",
    "Ingredients:\n- ",
    "According to a report published on",
    "台灣位於",
    "Q: What is the difference between",
    "La ville de",
    "SELECT ",
    "Let $x$ be a",
    "她說：「",
    "In this paper, we",
    "class ",
    "Die ",
    "Yesterday morning the",
    "今天天氣",
    "function ",
    "Step 1:",
    "\"I don't know,\" she said, \"but",
    "中国的",
    "# Introduction\n\n",
    "The planet",
    "{\"id\": 1, \"name\": \"",
    "日本の",
    "A: Hello! Can you help me with",
    "Question: A train leaves the station at",
    "<!DOCTYPE html>\n<html>\n",
    "The most important thing about",
    "以下是一些",
    "public static void main(",
    "В ",
    "How to cook",
    "#!/bin/bash\n",
    "Chapter 1\n\n",
    "他是一位",
    "Translate the following sentence into French:",
    "let rec ",
    "O Brasil",
    "Assistant: Sure! Here",
    "In 1848,",
    "用戶：請問",
    "fn main() {\n",
    "서울은",
    "The company announced that",
    "如何學習",
    "What is 17 + 25?",
    "Abstract.",
    "In the beginning",
    "春天",
});

}  // namespace

std::span<const std::string_view> openings() { return kOpenings; }

}  // namespace nibble
