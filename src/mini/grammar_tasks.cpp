// SPDX-License-Identifier: MIT
// Things to do with given values: sums, copies, sorting, phrases. Held out are phrasings and
// values: no probe's numbers, words or names stand in the training data for the same task.
#include "mini/grammar.h"

namespace nibble {

const std::string_view kGrammarTasks = R"(= add zh retention add 130 p=6
+ {a}+{b}[等於多少|是多少|=]
+ {a} + {b} [等於多少|是多少|=]
+ {a} 加 {b} [等於多少|是多少|等於幾]
+ {a}加{b}[等於多少|是多少]
+ {a} 和 {b} 的和是多少
* 計算 {a} + {b}
* 算一下 {a} 加 {b}
* 算出 {a} 加上 {b}
* 算出 {a}+{b}
- {a}+{b}等於幾
- {a} 加上 {b} 是多少
~ 計算 {a} 加 {b}
> {a} + {b} = {c}。
! = {c}。
= add en retention add 130 p=6
+ what is {a} + {b}
+ what is {a}+{b}
+ what is {a} plus {b}
+ how much is {a} + {b}
+ how much is {a} plus {b}
+ {a} + {b} =
+ what is the sum of {a} and {b}
* add {a} and {b}
+ what do you get if you add {a} and {b}
* compute {a} + {b}
* calculate {a} plus {b}
- what do you get for {a} + {b}
- how much is {a}+{b}
~ compute {a} plus {b}
> {a} + {b} = {c}.
! = {c}.
= sub zh retention sub 130 p=6
+ {a}-{b}[等於多少|是多少|=]
+ {a} - {b} [等於多少|是多少|=]
+ {a} 減 {b} [等於多少|是多少|等於幾]
+ {a}減{b}[等於多少|是多少]
+ {a} 和 {b} 的差是多少
* 計算 {a} - {b}
* 算一下 {a} 減 {b}
* 算出 {a} 減去 {b}
* 算出 {a}-{b}
- {a}-{b}等於幾
- {a} 減去 {b} 是多少
~ 計算 {a} 減 {b}
> {a} - {b} = {c}。
! = {c}。
= sub en retention sub 130 p=6
+ what is {a} - {b}
+ what is {a}-{b}
+ what is {a} minus {b}
+ how much is {a} - {b}
+ how much is {a} minus {b}
+ {a} - {b} =
* subtract {b} from {a}
+ what do you get if you subtract {b} from {a}
* compute {a} - {b}
* calculate {a} minus {b}
- what do you get for {a} - {b}
- how much is {a}-{b}
~ compute {a} minus {b}
> {a} - {b} = {c}.
! = {c}.
= mul zh retention mul 40 p=4
+ {a}×{b}[等於多少|是多少|=]
+ {a} × {b} [等於多少|是多少|=]
+ {a} 乘 {b} [等於多少|是多少|等於幾]
+ {a}乘以{b}是多少
* 計算 {a} × {b}
* 算一下 {a} 乘 {b}
- {a}×{b}等於幾
- {a} 乘以 {b} 等於多少
> {a} × {b} = {c}。
! = {c}。
= mul en retention mul 40 p=4
+ what is {a} × {b}
+ what is {a} times {b}
+ how much is {a} times {b}
+ {a} × {b} =
+ what is the product of {a} and {b}
* multiply {a} by {b}
+ what do you get if you multiply {a} by {b}
* compute {a} × {b}
- how much is {a} × {b}
- what do you get for {a} times {b}
> {a} × {b} = {c}.
! = {c}.
= larger zh retention compare 40 p=4
+ {a} 和 {b} 哪個[比較大|大|更大]
+ {a} 跟 {b} 哪個[比較大|大]
+ {a}和{b}哪個大
+ 哪個比較大，{a} 還是 {b}
+ {a} 大還是 {b} 大
- {a} 跟 {b} 哪個更大
- 哪個大，{a} 還是 {b}
> {l} 比 {s} 大。
! {l} 比 {s} 大
= larger en retention compare 40 p=4
+ which is [larger|bigger], {a} or {b}
+ which number is [larger|bigger], {a} or {b}
+ is {a} or {b} [larger|bigger]
+ what is larger, {a} or {b}
- what is bigger, {a} or {b}
- which of the two is larger, {a} or {b}
> {l} is larger than {s}.
! {l} is larger than {s}
= next zh retention next 25 p=3
+ {a} 的下一個數[字|]是[多少|什麼|幾]
+ {a} 之後是[多少|幾|什麼數字]
+ {a} 後面的數字是多少
- {a} 後面的數字是幾
- 數字 {a} 之後是多少
> {a} 的下一個數字是 {b}。
! 是 {b}。
= next en retention next 25 p=3
+ what number comes after {a}
+ which number comes after {a}
+ what number follows {a}
+ what is the next number after {a}
- which number follows {a}
- what is the number after {a}
> After {a} comes {b}.
! comes {b}.
= count zh retention count 40 p=4
* 從 {a} 數到 {b}
* 從{a}數到{b}
* 由 {a} 數到 {b}
* 數數，從 {a} 到 {b}
* 寫出 {a} 到 {b} 的數字
~ 數數，由 {a} 數到 {b}
~ 寫出從 {a} 到 {b} 的數字
> {list}。
@ {list}。
= count en retention count 40 p=4
* count from {a} to {b}
* count up from {a} to {b}
* write the numbers from {a} to {b}
* list the numbers from {a} to {b}
~ write all the numbers from {a} to {b}
~ list the numbers {a} to {b}
> {list}.
@ {list}.
= sort zh retention sort 40 p=4
* 把 {x}、{y}、{z} [由小到大|從小到大]排列
* 把{x}、{y}、{z}由小到大排好
* 將 {x}、{y}、{z} [由小到大|從小到大]排列
+ {x}、{y}、{z} 由小到大怎麼排
~ 將 {x}、{y}、{z} 從小到大排好
~ 把數字 {x}、{y}、{z} 由小到大排列
> {s1}、{s2}、{s3}。
@ {s1}、{s2}、{s3}。
= sort en retention sort 40 p=4
* sort {x}, {y}, {z}
* sort the numbers {x}, {y}, {z}
* put {x}, {y}, {z} in order
* order the numbers {x}, {y}, {z}
* put these numbers in order: {x}, {y}, {z}
~ put the numbers {x}, {y}, {z} in order
~ sort these numbers: {x}, {y}, {z}
> {s1}, {s2}, {s3}.
@ {s1}, {s2}, {s3}.
= repeat zh retention repeat_zh 60 p=8
* 重複：「{x}」
* 重複「{x}」
* 跟我說「{x}」
* 跟著我說：「{x}」
* 照著說「{x}」
* 說「{x}」
* 把「{x}」再說一次
* 重複這句話：「{x}」
~ 跟我說一次「{x}」
~ 重複一次：「{x}」
~ 照著說這句話：「{x}」
> {x}
@ {x}
= repeat en retention repeat_en 80 p=8
* repeat: "{x}"
* repeat "{x}"
* repeat after me: "{x}"
* say "{x}"
* say this: "{x}"
* say the words "{x}"
* repeat the words "{x}"
* copy "{x}"
~ repeat this: "{x}"
~ say after me: "{x}"
~ copy the words "{x}"
> {x}
@ {x}
= phrase zh retention phrase 40 p=5
+ {czh}的{zh}英文怎麼說
+ {czh}的{zh}用英文怎麼說
+ 「{czh}的{zh}」的英文是什麼
* 把「{czh}的{zh}」翻譯成英文
* 把{czh}的{zh}翻成英文
- {czh}的{zh}的英文是什麼
- 「{czh}的{zh}」用英文怎麼說
> {czh}的{zh}的英文是 {cen} {en}。
! {cen} {en}
= phrase en retention phrase 40 p=5
+ what is {cen} {en} in Chinese
+ how do you say {cen} {en} in Chinese
+ what is the Chinese for {cen} {en}
* translate {cen} {en} into Chinese
* translate "{cen} {en}" to Chinese
- how do you say "{cen} {en}" in Chinese
- what is "{cen} {en}" in Chinese
> The Chinese for {cen} {en} is {czh}的{zh}.
! {czh}的{zh}
= list zh retention list 30 p=5
* 列出{nzh}種{zh}
* 列舉{nzh}種{zh}
* 說出{nzh}種{zh}
* 給我{nzh}種{zh}
* 舉出{nzh}種{zh}
+ 有哪{nzh}種{zh}
- 可以舉出{nzh}種{zh}嗎
~ 列舉出{nzh}種{zh}
~ 說說{nzh}種{zh}
> {listzh}。
! {listzh}
= list en retention list 30 p=5
* list {nen} {en}
* name {nen} {en}
* give me {nen} {en}
* tell me {nen} {en}
* write down {nen} {en}
* give me the names of {nen} {en}
- can you name {nen} {en}
~ write a list of {nen} {en}
~ tell me the names of {nen} {en}
> {Listen}.
! {Listen}
= story zh retention story 50 p=8 lang
* 講一個{zh}在{pzh}的故事
* 說一個{zh}在{pzh}的故事
* 講個{zh}在{pzh}的故事給我聽
* 寫一個{zh}在{pzh}的故事
* 說個關於{zh}的故事，地點在{pzh}
~ 說個{zh}在{pzh}的故事給我聽
~ 講一個關於{zh}的故事，地點在{pzh}
> 從前，{pzh}住著一隻{zh}。有一天，{zh}遇見了{frzh}，牠們一起{dozh}。後來，牠們成了好朋友。
! {pzh}住著一隻{zh}
! {dozh}
= story en retention story 50 p=8 lang
* tell me a story about a {en} {pen}
* tell a story about a {en} {pen}
* write a story about a {en} {pen}
* tell me a short story of a {en} {pen}
* write a short story about a {en} {pen}
~ tell a short story about a {en} {pen}
~ write me a story of a {en} {pen}
> Once upon a time, a {en} lived {pen}. One day the {en} met a {fren} and they {doen} together. They became good friends.
! {en} lived {pen}
! {doen}
)";

}  // namespace nibble
