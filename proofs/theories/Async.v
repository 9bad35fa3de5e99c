(** Asynchronous scheduling: the ledger may check step k+1 before the tokens sampled
    in step k are known on the CPU.  Entries of a request's own pages are symbolic,
    "(request, length)"; sharing needs known tokens.  A symbolic check that passes
    is a concrete check that will pass when the step runs. *)
From Coq Require Import List Arith Lia Bool.
Import ListNotations.
From Sametree Require Import Reference Core.

Section Async.
Variable token : Type.
Variable teq : forall a b : token, {a = b} + {a <> b}.
Inductive name := Known (h : list token) | Of (r n : nat).
Definition den (H : nat -> list token) (x : name) := match x with Known h => h | Of r n => firstn n (H r) end.
Record srow := Srow { s_req : nat; s_pos : nat; s_reads : list nat; s_write : nat; s_samp : bool }.
Definition spost (L : nat -> option name) (plan : list srow) :=
  fold_left (fun L g => upd L (s_write g) (Some (Of (s_req g) (s_pos g + 1)))) plan L.
(** [known r]: the tokens of request [r] that the CPU has seen *)
Definition read_ok (known : nat -> list token) (L' : nat -> option name) (r i s : nat) : bool :=
  match L' s with
  | Some (Of r' n) => Nat.eqb r' r && Nat.eqb n (i + 1)
  | Some (Known h) => if list_eq_dec teq h (firstn (i + 1) (known r)) then Nat.leb (i + 1) (length (known r)) else false
  | None => false
  end.
Definition scheck (known : nat -> list token) (L : nat -> option name) (plan : list srow) : bool :=
  nodupb (map s_write plan) &&
  forallb (fun g => Nat.eqb (length (s_reads g)) (s_pos g) &&
     forallb (fun i => match nth_error (s_reads g) i with Some s => read_ok known (spost L plan) (s_req g) i s | None => false end)
             (seq 0 (s_pos g))) plan.
(** the row that the GPU will run, its token read from device memory *)
Definition conc (H : nat -> list token) (d : token) (g : srow) : row token :=
  Row token (s_req g) (firstn (s_pos g) (H (s_req g))) (nth (s_pos g) (H (s_req g)) d) (s_reads g) (s_write g) (s_samp g).
Definition dled (H : nat -> list token) (L : nat -> option name) s := option_map (den H) (L s).

Lemma firstn_nth (l : list token) n d : n < length l -> firstn n l ++ [nth n l d] = firstn (n + 1) l.
Proof. revert l. induction n as [|n IH]; intros [|a l] Hn; simpl in *; try lia; [reflexivity|]. rewrite IH by lia. reflexivity. Qed.

Lemma post_conc H d plan : (forall g, In g plan -> s_pos g < length (H (s_req g))) ->
  forall L s, post token (dled H L) (map (conc H d) plan) s = dled H (spost L plan) s.
Proof.
  induction plan as [|g plan IH]; intros Hp L s; [reflexivity|].
  transitivity (post token (dled H (upd L (s_write g) (Some (Of (s_req g) (s_pos g + 1))))) (map (conc H d) plan) s).
  - assert (E : forall L1 L2 : nat -> option (list token), (forall x, L1 x = L2 x) -> forall p x, post token L1 p x = post token L2 p x).
    { intros L1 L2 E p. revert L1 L2 E. induction p as [|q p IHp]; intros L1 L2 E x; [apply E|]. apply IHp.
      intros y. unfold upd. destruct (Nat.eqb y _); [reflexivity|apply E]. }
    unfold post. simpl. apply E. intros x. unfold dled, upd. destruct (Nat.eqb x (s_write g)); [|reflexivity].
    simpl. unfold r_full. simpl. rewrite firstn_nth by (apply Hp; left; reflexivity). reflexivity.
  - apply IH. intros q Iq. apply Hp. right. exact Iq.
Qed.

Theorem symbolic_check_sound H d known L plan :
  (forall r, exists more, H r = known r ++ more) ->
  (forall g, In g plan -> s_pos g < length (H (s_req g))) ->
  scheck known L plan = true -> check_step token teq (dled H L) (map (conc H d) plan) = true.
Proof.
  intros Kn Hp C. unfold scheck in C. apply andb_true_iff in C as [N C]. rewrite forallb_forall in C.
  unfold check_step. apply andb_true_iff. split.
  - unfold writes. rewrite map_map. exact N.
  - apply forallb_forall. intros w Iw. apply in_map_iff in Iw as [g [<- Ig]]. specialize (C g Ig). apply andb_true_iff in C as [Ln C].
    apply Nat.eqb_eq in Ln. rewrite forallb_forall in C. unfold check_row. simpl.
    destruct (list_eq_dec _ _ _) as [|Ne]; [reflexivity|]. exfalso. apply Ne. clear Ne.
    assert (Lh : length (firstn (s_pos g) (H (s_req g))) = length (s_reads g)) by (rewrite firstn_length; specialize (Hp g Ig); lia).
    unfold prefixes. rewrite Lh, map_map.
    assert (G : forall i s, nth_error (s_reads g) i = Some s ->
       post token (dled H L) (map (conc H d) plan) s = Some (firstn (S i) (firstn (s_pos g) (H (s_req g))))).
    { intros i s Hi. assert (Li : i < s_pos g) by (rewrite <- Ln; apply nth_error_Some; congruence).
      specialize (C i). rewrite Hi in C. specialize (C (proj2 (in_seq _ _ _) (conj (Nat.le_0_l i) Li))).
      rewrite post_conc by exact Hp. unfold dled. unfold read_ok in C. rewrite firstn_firstn, Nat.min_l by lia.
      destruct (spost L plan s) as [[h|r' n]|]; [| |discriminate]; cbn [option_map den]; f_equal.
      - destruct (list_eq_dec _ _ _) as [->|]; [|discriminate]. apply Nat.leb_le in C. destruct (Kn (s_req g)) as [more Em]. rewrite Em.
        rewrite Nat.add_1_r in *. rewrite firstn_app. replace (S i - length (known (s_req g))) with 0 by lia. rewrite firstn_O, app_nil_r. reflexivity.
      - apply andb_true_iff in C as [C1 C2]. apply Nat.eqb_eq in C1, C2. subst. rewrite Nat.add_1_r. reflexivity. }
    revert G. generalize (post token (dled H L) (map (conc H d) plan)), (s_reads g), (firstn (s_pos g) (H (s_req g))). clear.
    intros Q rs h G. assert (X : forall rs k, (forall i s, nth_error rs i = Some s -> Q s = Some (firstn (S (k + i)) h)) ->
       map Q rs = map (fun x => Some (firstn (S x) h)) (seq k (length rs))).
    { clear. intros rs. induction rs as [|s rs IH]; intros k G; [reflexivity|]. cbn [map length seq]. f_equal.
      - rewrite (G 0 s eq_refl), Nat.add_0_r. reflexivity.
      - apply IH. intros i x Hi. rewrite (G (S i) x Hi). do 3 f_equal. lia. }
    apply (X rs 0). exact G.
Qed.

(** symbolic entries keep their meaning when histories grow *)
Lemma den_stable H H' r n : n <= length (H r) -> (exists more, H' r = H r ++ more) -> den H' (Of r n) = den H (Of r n).
Proof. intros Le [more E]. simpl. rewrite E, firstn_app. replace (n - length (H r)) with 0 by lia. rewrite firstn_O, app_nil_r. reflexivity. Qed.
End Async.
