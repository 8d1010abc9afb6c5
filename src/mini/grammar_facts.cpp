// SPDX-License-Identifier: MIT
// Questions about facts. The facts themselves must be taught; held out are the phrasings.
#include "mini/grammar.h"

namespace nibble {

const std::string_view kGrammarFacts = R"(= capital zh retention capitals 50 p=8
+ {zh}的首都是[哪裡|哪兒|哪個城市|什麼|什麼城市]
+ {zh}的首都在[哪裡|哪兒]
+ {zh}首都是[哪裡|什麼|哪個城市]
+ 哪裡是{zh}的首都
+ 哪個城市是{zh}的首都
+ {zh}的首都叫什麼
+ 你知道{zh}的首都[嗎|是哪裡嗎|在哪裡嗎]
* 說出{zh}的首都
* [告訴我|說說]{zh}的首都
- {zh}的首都叫什麼名字
- {zh}的首都是什麼地方
- 你知道{zh}的首都是哪個城市嗎
~ 告訴我{zh}的首都在哪裡
> {zh}的首都是{czh}。
! {czh}
= capital en retention capitals 50 p=8
+ what is the capital of {en}
+ which city is the capital of {en}
+ what city is the capital of {en}
+ what's the capital of {en}
+ what is the capital city of {en}
+ do you know the capital of {en}
+ where is the capital of {en}
+ what is the name of the capital of {en}
+ {en} has which capital
* name the capital of {en}
* tell me the capital of {en}
* give me the capital city of {en}
- which city is the capital city of {en}
- do you know what the capital of {en} is
- what is the name of the capital city of {en}
~ tell me what the capital of {en} is
> The capital of {en} is {cen}.
! {cen}
= country zh retention capitals 30 p=5
+ {czh}是哪個國家的首都
+ {czh}是哪國的首都
+ 哪個國家的首都是{czh}
+ 以{czh}為首都的國家是哪個
+ {czh}是什麼國家的首都
+ {czh}在哪個國家
- 哪一國的首都是{czh}
- 你知道{czh}是哪個國家的首都嗎
> {czh}是{zh}的首都。
! {zh}的首都
= country en retention capitals 30 p=5
+ {cen} is the capital of which country
+ which country has {cen} as its capital
+ what country is {cen} the capital of
+ of which country is {cen} the capital
+ {cen} is the capital of what country
+ which country is {cen} in
- what country has {cen} as its capital
- do you know which country {cen} is the capital of
> {cen} is the capital of {en}.
! capital of {en}
= colour zh retention coloured 30 p=5
+ {zh}是什麼顏色
+ {zh}是什麼顏色的
+ {zh}的顏色是什麼
+ {zh}是哪種顏色
+ {zh}有什麼顏色
+ 你知道{zh}是什麼顏色嗎
+ 什麼顏色的{zh}最常見
- {zh}的顏色是哪種
- {zh}會是什麼顏色
- 你知道{zh}的顏色嗎
> {zh}是{czh}的。
! {czh}
= colour en retention coloured 30 p=5
+ what colour is {en}
+ what color is {en}
+ what is the colour of {en}
+ which colour is {en}
+ what colour does {en} have
+ do you know the colour of {en}
+ which colour has {en}
- do you know what colour {en} is
- which colour does {en} have
- do you know which colour {en} has
> The colour of {en} is {cen}.
! {cen}
= sound zh retention animals 20 p=3
+ {zh}怎麼叫
+ {zh}的叫聲是什麼
+ {zh}會怎麼叫
+ {zh}發出什麼聲音
+ {zh}叫起來是什麼聲音
* 學{zh}叫
- {zh}會發出什麼聲音
- {zh}的聲音是什麼
> {zh}的叫聲是{szh}。
! {szh}
= sound en retention animals 20 p=3
+ what sound does a {en} make
+ what does a {en} say
+ what noise does a {en} make
+ how does a {en} sound
+ which sound does a {en} make
* make the sound of a {en}
- what is the sound of a {en}
- which noise does a {en} make
> A {en} says {sen}.
! {sen}
= legs zh retention animals 20 p=3
+ {zh}有幾[隻腳|條腿]
+ {zh}有多少[隻腳|條腿]
+ 一隻{zh}有幾隻腳
+ {zh}的腳有幾隻
- 一隻{zh}有多少隻腳
- {zh}的腳有多少隻
> {zh}有{legszh}隻腳。
! {legszh}隻腳
= legs en retention animals 20 p=3
+ how many legs does a {en} have
+ how many legs has a {en}
+ what is the number of legs of a {en}
+ a {en} has how many legs
- how many legs are there on a {en}
- do you know how many legs a {en} has
> A {en} has {legs} legs.
! {legs} legs
= food zh retention animals 20 p=3
+ {zh}吃什麼
+ {zh}喜歡吃什麼
+ {zh}愛吃什麼
+ {zh}的食物是什麼
+ 你知道{zh}吃什麼嗎
* 說說{zh}吃什麼
- {zh}最喜歡吃什麼
- {zh}都吃什麼食物
> {zh}喜歡吃{fzh}。
! {fzh}
= food en retention animals 20 p=3
+ what does a {en} eat
+ what does a {en} like to eat
+ what is the food of a {en}
+ what do you feed a {en}
+ do you know what a {en} eats
* tell me what a {en} eats
- which food does a {en} like
- what food does a {en} like to eat
> A {en} likes to eat {fen}.
! {fen}
= home zh retention animals 16 p=3
+ {zh}住在哪裡
+ {zh}住在什麼地方
+ {zh}的家在哪裡
+ 哪裡可以看到{zh}
- {zh}住在哪兒
- 你知道{zh}住在哪裡嗎
> {zh}住在{hzh}。
! {hzh}
= home en retention animals 16 p=3
+ where does a {en} live
+ where is the home of a {en}
+ in what place does a {en} live
+ where can I find a {en}
- in which place does a {en} live
- do you know where a {en} lives
+ can you tell me where a {en} lives
+ do you know the home of a {en}
> A {en} lives in {hen}.
! {hen}
= opposite zh retention opposite 40 p=8
+ {zh}的[相反|反義詞]是什麼
+ {zh}的相反詞是什麼
+ 「{zh}」的[反義詞|相反詞|相反]是什麼
+ 什麼是{zh}的反義詞
+ 和{zh}相反的是什麼
+ {zh}的反面是什麼
* 說出{zh}的反義詞
* 給我{zh}的相反詞
- 什麼是{zh}的相反詞
- 和「{zh}」相反的是什麼
- {zh}的反義詞是哪個
~ 說出「{zh}」的相反詞
> {zh}的反義詞是{ozh}。
! 是{ozh}
= opposite en retention opposite 40 p=8
+ what is the opposite of {en}
+ what's the opposite of {en}
+ what is the opposite of "{en}"
+ which word is the opposite of {en}
+ what word means the opposite of {en}
+ {en} is the opposite of what
* name the opposite of {en}
* give me the opposite of {en}
* tell me the opposite of {en}
- which word means the opposite of {en}
- what word is the opposite of "{en}"
- do you know the opposite of {en}
~ tell me the word that is the opposite of {en}
> The opposite of {en} is {oen}.
! is {oen}
= definition zh retention definitions 45 p=8 lang
+ {zh}是什麼
+ 什麼是{zh}
+ {zh}是什麼意思
+ {zh}的意思是什麼
+ 「{zh}」是什麼意思
+ {zh}的定義是什麼
+ 你知道{zh}是什麼嗎
* 解釋{zh}
* 解釋一下{zh}
* 說明什麼是{zh}
* 說說{zh}是什麼
- 你知道什麼是{zh}嗎
- 「{zh}」的意思是什麼
- {zh}到底是什麼
~ 解釋一下什麼是{zh}
> {zh}是{dzh}。
! {kzh}
= definition en retention definitions 45 p=8 lang
+ what is {aen}
+ what's {aen}
+ what does {en} mean
+ what does the word {en} mean
+ what is the meaning of {en}
+ do you know what {aen} is
+ how do you define {en}
+ what is the definition of the word {en}
* define {en}
* explain what {aen} is
* tell me what {aen} is
* explain the word {en}
- what does the word "{en}" mean
- what is the definition of {en}
- can you tell me what {aen} is
~ define the word {en}
+ what does "{en}" mean
+ what is the meaning of the word "{en}"
* explain the word "{en}"
> The word {en} means {den}.
! {ken}
= category zh retention nouns 30 p=5
+ {zh}是哪一類[東西|]
+ {zh}屬於什麼
+ {zh}屬於哪一類
+ {zh}是一種什麼
+ {zh}算是什麼
- {zh}算是哪一類
- {zh}是屬於哪一類的東西
> {zh}是一種{catzh}。
! {catzh}
= category en retention nouns 30 p=5
+ what kind of thing is a {en}
+ what sort of thing is a {en}
+ which category does {en} belong to
+ what type of thing is a {en}
- what category does {en} belong to
- which kind of thing is a {en}
> A {en} is a {caten}.
! {caten}
= is_a zh retention noun_category 40 p=5
+ {zh}是{qzh}嗎
+ {zh}是不是{qzh}
+ {zh}算{qzh}嗎
+ {zh}屬於{qzh}嗎
+ 你覺得{zh}是{qzh}嗎
- {zh}算不算{qzh}
- 你說{zh}是不是{qzh}
> {yeszh}{zh}是一種{catzh}。
! {yeszh}{zh}
= is_a en retention noun_category 40 p=5
+ is a {en} a {qen}
+ is {en} a {qen}
+ would you say a {en} is a {qen}
+ do you think a {en} is a {qen}
+ a {en} is a {qen}, right
- would you say that a {en} is a {qen}
- is it true that a {en} is a {qen}
+ do you know if a {en} is a {qen}
+ can you say if a {en} is a {qen}
+ is it right that a {en} is a {qen}
+ is it correct to say that a {en} is a {qen}
> {yesen} a {en} is a {caten}.
! {yesen} a {en}
= word zh retention words 60 p=9
+ {zh}的英文[是什麼|怎麼說|怎麼寫|是哪個字]
+ {zh}用英文怎麼說
+ 「{zh}」的英文是什麼
+ 英文的{zh}怎麼說
+ 怎麼用英文說{zh}
+ {zh}翻譯成英文是什麼
* 把{zh}翻譯成英文
* 把「{zh}」翻成英文
* 用英文說{zh}
- 「{zh}」用英文怎麼說
- {zh}翻成英文是什麼
- 英文怎麼說{zh}
~ 把「{zh}」翻譯成英文
> {zh}的英文是 {en}。
! {en}
= word en retention words 60 p=9
+ what is {en} in Chinese
+ how do you say {en} in Chinese
+ what is the Chinese word for {en}
+ what is the Chinese for {en}
+ how do I say "{en}" in Chinese
+ what does {en} mean in Chinese
* translate {en} into Chinese
* translate "{en}" to Chinese
* say {en} in Chinese
- how do you say "{en}" in Chinese
- which Chinese word means {en}
- what is "{en}" in Chinese
~ translate the word {en} into Chinese
> The Chinese for {en} is {zh}.
! {zh}
= word_back zh retention words 30 p=5
+ {en} 是什麼意思
+ {en} 的中文是什麼
+ 英文 {en} 是什麼意思
+ {en} 的中文怎麼說
+ {en} 用中文怎麼說
* 把 {en} 翻譯成中文
* 把 {en} 翻成中文
- 「{en}」的中文是什麼
- 英文 {en} 的中文是什麼
> {en} 的中文是{zh}。
! {zh}
= after_day zh retention days 20 p=3
+ {zh}的[下一天|隔天|第二天|明天]是星期幾
+ {zh}之後是星期幾
+ {zh}過後是星期幾
+ {zh}後面是星期幾
- {zh}後面那一天是星期幾
- 過了{zh}是星期幾
+ {zh}的後面[那天|一天]是星期幾
+ 在{zh}之後的那一天是星期幾
+ 過完{zh}是星期幾
+ {zh}過了是星期幾
+ 如果今天是{zh}，明天是星期幾
> {zh}之後是{nzh}。
! 是{nzh}
= after_day en retention days 20 p=3
+ what day comes after {en}
+ which day comes after {en}
+ what day follows {en}
+ what is the day after {en}
+ if today is {en}, what day is tomorrow
- which day follows {en}
- what is the next day after {en}
> After {en} comes {nen}.
! {nen}
= before_day zh retention days 20 p=3
+ {zh}的[前一天|昨天]是星期幾
+ {zh}之前是星期幾
+ {zh}前面是星期幾
- {zh}前面那一天是星期幾
- 星期幾在{zh}之前
+ {zh}的前面[那天|一天]是星期幾
+ 在{zh}之前的那一天是星期幾
+ 星期幾是{zh}的前一天
+ 哪一天在{zh}[之前|前面]
+ 如果今天是{zh}，昨天是星期幾
> {zh}之前是{bzh}。
! 是{bzh}
= before_day en retention days 20 p=3
+ what day comes before {en}
+ which day comes before {en}
+ what is the day before {en}
+ if today is {en}, what day was yesterday
- which day is before {en}
- what day is before {en}
> Before {en} comes {ben}.
! {ben}
= after_month zh retention months 20 p=3
+ {zh}的下個月是幾月
+ {zh}之後是幾月
+ {zh}過後是幾月
+ {zh}後面是[幾月|哪個月]
- 過了{zh}是幾月
- {zh}後面那個月是幾月
+ 過完{zh}是[幾月|哪個月]
+ {zh}過了是幾月
+ {zh}結束後是幾月
+ 在{zh}之後的那個月是幾月
+ 下個月是幾月，如果這個月是{zh}
> {zh}之後是{nzh}。
! 是{nzh}
= after_month en retention months 20 p=3
+ what month comes after {en}
+ which month comes after {en}
+ what month follows {en}
+ what is the month after {en}
- which month follows {en}
- what is the next month after {en}
+ which month is after {en}
+ if this is {en}, what is the next month
> After {en} comes {nen}.
! {nen}
= number_word zh retention numbers 20 p=3
+ {n} 的英文是什麼
+ {n} 用英文怎麼說
+ 數字 {n} 的英文怎麼說
+ {n} 怎麼用英文說
- 數字 {n} 用英文怎麼說
- {n} 的英文怎麼說
> {n} 的英文是 {en}。
! {en}
= number_word en retention numbers 20 p=3
+ how do you write {n} in words
+ how do you spell {n}
+ what is {n} in words
* write {n} in words
* spell the number {n}
- how do you spell the number {n}
- how do I write the number {n} in words
> {n} in words is {en}.
! is {en}
= fact_week zh retention - 6 p=1
+ 一[個星期|週]有[幾|多少]天
+ 一星期有幾天
- 一個星期總共有幾天
> 一個星期有 7 天。
! 7 天
= fact_week en retention - 6 p=1
+ how many days are [in a week|there in a week]
+ how many days does a week have
- a week has how many days
> A week has 7 days.
! 7 days
= fact_year zh retention - 6 p=1
+ 一年有[幾個月|多少個月|幾月]
+ 一年總共有幾個月
- 一年裡有多少個月
> 一年有 12 個月。
! 12 個月
= fact_year en retention - 6 p=1
+ how many months are [in a year|there in a year]
+ how many months does a year have
- a year has how many months
> A year has 12 months.
! 12 months
= fact_boil zh retention - 6 p=1
+ 水[在|到]幾度[沸騰|會沸騰]
+ 水的沸點是[多少|幾度]
- 水的沸點是多少度
> 水在攝氏 100 度沸騰。
! 100
= fact_boil en retention - 6 p=1
+ at what temperature does water boil
+ what is the boiling point of water
- at how many degrees does water boil
> Water boils at 100 degrees Celsius.
! 100
= fact_freeze zh retention - 6 p=1
+ 水[在|到]幾度[結冰|會結冰]
+ 水的冰點是[多少|幾度]
- 水的冰點是多少度
> 水在攝氏 0 度結冰。
! 0 度
= fact_freeze en retention - 6 p=1
+ at what temperature does water freeze
+ what is the freezing point of water
- at how many degrees does water freeze
> Water freezes at 0 degrees Celsius.
! freezes at 0
= fact_planet zh retention - 6 p=1
+ 太陽系[最大的行星是哪個|最大的行星是什麼]
+ 哪個行星最大
- 最大的行星是哪一個
+ [最大的行星是什麼|什麼行星最大|最大的行星是哪顆]
> 太陽系最大的行星是木星。
! 木星
= fact_planet en retention - 6 p=1
+ what is the [largest|biggest] planet
+ which planet is the [largest|biggest]
- what is the biggest planet of all
> The largest planet is Jupiter.
! Jupiter
= fact_mountain zh retention - 6 p=1
+ 世界[最高的山是哪座|最高的山是什麼]
+ 哪座山最高
- 世界上哪座山最高
+ [最高的山是什麼|什麼山最高|最高的山是哪座]
> 世界最高的山是聖母峰。
! 聖母峰
= fact_mountain en retention - 6 p=1
+ what is the [highest|tallest] mountain
+ which mountain is the [highest|tallest]
+ which is the tallest mountain in the world
- what is the highest mountain in the world
> The highest mountain is Mount Everest.
! Everest
= fact_ocean zh retention - 6 p=1
+ 世界最大的[海洋|洋]是什麼
+ 哪個海洋最大
- 最大的海洋是哪個
+ [最大的海洋是什麼|什麼海洋最大|最大的洋是哪個]
> 世界最大的海洋是太平洋。
! 太平洋
= fact_ocean en retention - 6 p=1
+ what is the [largest|biggest] ocean
+ which ocean is the [largest|biggest]
+ which is the biggest ocean in the world
- what is the largest ocean in the world
> The largest ocean is the Pacific Ocean.
! Pacific
= fact_light zh retention - 6 p=1
+ 什麼東西[跑得最快|速度最快]
+ 什麼最快
- 世界上什麼東西最快
> 光的速度最快。
! 光
= fact_light en retention - 6 p=1
+ what is the fastest thing
+ what [moves|travels] fastest
+ what is fastest in the world
- what is the fastest thing in the world
> Light is the fastest thing there is.
! Light
)";

}  // namespace nibble
